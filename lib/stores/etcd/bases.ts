import { ForeignValueError } from '../../core/errors.js';
import { LEAD_MS, tokenAt } from '../../core/fencing-token.js';
import { foreignKey } from './names.js';
import { entriesAt, type Entry, get, modifiedAt, put, revisionOf } from './protocol.js';
import { resultOf, SharedWork } from './shared-work.js';
import type { TxnRunner } from './txn-runner.js';

/**
 * A base that was written less than this many milliseconds ago is not raised again: when many processes start together,
 * the first of them raises the base for all. No etcd is restored in so short a time.
 */
export const FRESH_MS = 500;

/** Time limit in milliseconds for a raise of the base in the background. */
const RAISE_LIMIT_MS = 5_000;

/**
 * The base is the number that is added to a revision of the cluster to make a fencing token. `revision` is the revision
 * at which the base was written.
 */
export interface Base {
  /** The name of the base's key in etcd. */
  readonly name: string;
  readonly value: number;
  /** The id of the cluster in which the base was written. */
  readonly cluster: string;
  readonly revision: number;
  /**
   * The value of the key in etcd. Every acquisition compares this text. It does not compare the revision: after a
   * restore, another base can have the same revision.
   */
  readonly text: string;
}

/**
 * Turns revisions into fencing tokens by adding a base. Revisions of a new cluster begin at 1, and the tokens of other
 * stores are large, because they follow the clock. Without the base, a resource that has seen tokens of another store
 * would refuse the tokens of etcd.
 *
 * A base is chosen so that the next token is a token of the present time. Revisions grow more slowly than {@link
 * tokenAt}, so no later token is ahead of the clock, except by {@link LEAD_MS}. Therefore a base that is chosen now puts
 * all new tokens above all earlier ones, also above those that a restored copy of etcd does not know of.
 */
export class Bases {
  #base: SharedWork<Base> | undefined;
  /**
   * `true` if etcd may have been restored from an older copy since this process last used the base. The base must then
   * be raised before its next use.
   */
  #mayBeRestored = true;
  /**
   * The value of `transactions.wentBackFrom` when the present base was requested. If the values differ, the revision
   * has gone back since then, and the base must be raised.
   */
  #wentBackFrom: number | undefined;

  constructor(
    private readonly transactions: TxnRunner,
    private readonly name: string,
  ) {
    transactions.onWentBack = () => void this.get(RAISE_LIMIT_MS).catch(() => undefined);
  }

  /**
   * Returns the base. If etcd may have been restored, the base is raised first, so that new tokens are above all earlier
   * tokens.
   */
  get(limit: number): Promise<Base> {
    return resultOf((left) => this.#current(left), limit);
  }

  #current(limit: number): SharedWork<Base> {
    const { wentBackFrom } = this.transactions;
    if (wentBackFrom !== this.#wentBackFrom) this.forget();
    if (!this.#base) {
      this.#wentBackFrom = wentBackFrom;
      const raises = this.#mayBeRestored;
      this.#mayBeRestored = false;
      const base = new SharedWork(
        (ms) => (wentBackFrom === undefined ? this.#load(raises, ms) : this.#raised(wentBackFrom, ms)),
        limit,
      );
      this.#base = base;
      base.result.catch(() => {
        this.#mayBeRestored ||= raises;
        if (this.#base === base) this.#base = undefined;
      });
    }
    return this.#base;
  }

  /** Discards the known base, because another process wrote the base again, or etcd lost all data. */
  forget(): void {
    this.#base = undefined;
  }

  /**
   * Called when etcd answers for the first time, and when it answers again: it may have been restored meanwhile, even
   * if its revision is not smaller than the last revision that this process has seen.
   */
  reconnected(): void {
    this.#mayBeRestored = true;
    this.forget();
  }

  /**
   * Raises the base after the revision has gone back, such as after the restore of an older backup. All other processes
   * notice the new base, because every acquisition compares it.
   */
  async #raised(before: number, limit: number): Promise<Base> {
    const found = await this.#read(limit);
    const raised = await this.#write(found, (found.base?.value ?? 0) + before, limit);
    if (!raised.isMine)
      throw new Error(
        'another process has meanwhile changed the number that is added to the revisions of etcd to make tokens',
      );
    if (this.transactions.wentBackFrom === before)
      this.transactions.wentBackFrom = this.#wentBackFrom = undefined;
    return raised;
  }

  /**
   * Checks the rights to read and write the base, and writes nothing. etcd checks the rights for all operations of a
   * transaction, even if their condition is false. The condition is false here: no key has revision 1, the revision of
   * an empty etcd.
   */
  async tryToWrite(limit: number): Promise<void> {
    const [compare, success] = [[modifiedAt(this.name, 1)], [put(this.name, '')]];
    await this.transactions.run({ compare, success }, limit);
  }

  /**
   * Returns the stored base. Writes a new one if there is none, if another cluster wrote it (a new cluster from a
   * backup), or if etcd may have been restored.
   */
  async #load(mayBeRestored: boolean, limit: number): Promise<Base> {
    const found = await this.#read(limit);
    const { base, cluster, revision } = found;
    if (!base) return this.#write(found, 0, limit);
    if (base.cluster !== cluster) return this.#write(found, base.value + revision, limit);
    if (!mayBeRestored || base.value + revision >= tokenAt(Date.now() + LEAD_MS - FRESH_MS)) return base;
    return this.#write(found, base.value, limit);
  }

  async #read(limit: number): Promise<FoundBase> {
    const { header, ...reply } = await this.transactions.runAnyway({ success: [get([this.name])] }, limit);
    const { cluster_id: cluster = '' } = header;
    return {
      base: this.#baseOf(entriesAt({ header, ...reply }, 0)[0]),
      cluster,
      revision: revisionOf(header),
    };
  }

  /**
   * Writes a base that is at least `least`, and that makes the next token at least one of the present time, unless the
   * base was changed after it was found.
   */
  async #write(
    { base, cluster, revision }: FoundBase,
    least: number,
    limit: number,
  ): Promise<Base & { readonly isMine: boolean }> {
    const present = tokenAt(Date.now() + LEAD_MS);
    if (!Number.isSafeInteger(present))
      throw new Error('fencing token out of range: correct the clock of this machine');
    const value = Math.max(least, present - revision);
    const text = `${value} ${cluster}`;
    const reply = await this.transactions.runAnyway(
      {
        compare: [modifiedAt(this.name, base?.revision ?? 0)],
        success: [put(this.name, text)],
        failure: [get([this.name])],
      },
      limit,
    );
    if (reply.succeeded)
      return { name: this.name, value, cluster, revision: revisionOf(reply.header), text, isMine: true };
    const found = this.#baseOf(entriesAt(reply, 0)[0]);
    if (!found)
      throw new Error(
        'another client has meanwhile deleted the number that is added to the revisions of etcd to make tokens',
      );
    return { ...found, isMine: false };
  }

  /** @throws ForeignValueError for a value of another program, which stays as it is */
  #baseOf(entry: Entry | undefined): Base | undefined {
    if (!entry) return undefined;
    const [, value, cluster = ''] = /^(\d{1,16}) (\d{1,20})$/.exec(entry.value) ?? [];
    if (value === undefined) throw new ForeignValueError(foreignKey(this.name));
    const { value: text, modified: revision } = entry;
    return { name: this.name, value: Number(value), cluster, revision, text };
  }
}

/** The stored base, if there is one, and the state of the cluster at its read. */
interface FoundBase {
  readonly base: Base | undefined;
  readonly cluster: string;
  readonly revision: number;
}
