import { LEAD_MS, tokenAt } from '../../core/fencing-token.js';
import { entriesAt, get, modifiedAt, put, revisionOf, type TxnReply } from './protocol.js';
import type { Transactions } from './transactions.js';

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
}

/**
 * Turns revisions into fencing tokens by adding a base. Revisions of a new cluster begin at 1, and the tokens of other
 * stores are large, because they follow the clock. Without the base, a resource that has seen tokens of another store
 * would refuse the tokens of etcd.
 */
export class Bases {
  #base: Promise<Base> | undefined;
  /**
   * The value of `transactions.wentBackFrom` when the present base was requested. If the values differ, the revision
   * has gone back since then, and the base must be raised.
   */
  #wentBackFrom: number | undefined;

  constructor(
    private readonly transactions: Transactions,
    private readonly name: string,
  ) {
    transactions.onWentBack = () => void this.get(RAISE_LIMIT_MS).catch(() => undefined);
  }

  /**
   * Returns the base. If the revision has gone back, the base is raised first, so that new tokens are above all earlier
   * tokens.
   */
  get(limit: number): Promise<Base> {
    const { wentBackFrom } = this.transactions;
    if (wentBackFrom !== this.#wentBackFrom) this.forget();
    if (!this.#base) {
      this.#wentBackFrom = wentBackFrom;
      const base = wentBackFrom === undefined ? this.#load(limit) : this.#raised(wentBackFrom, limit);
      this.#base = base;
      base.catch(() => {
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
   * Raises the base after the revision has gone back, such as after the restore of an older backup. All other processes
   * notice the new base, because every acquisition compares it.
   */
  async #raised(before: number, limit: number): Promise<Base> {
    const base = await this.#load(limit);
    const raised = await this.#write(base.cluster, base.revision, base.value + before, limit);
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
   * Reads the base. If another cluster wrote it, this cluster was restored from a backup, which lacks the last tokens
   * that were granted. Then raises the base to a token of the current time: no granted token was ahead of the clock, so
   * all new tokens are larger.
   */
  async #load(limit: number): Promise<Base> {
    const look = await this.transactions.runAnyway({ success: [get([this.name])] }, limit);
    const { cluster_id: cluster = '' } = look.header;
    const found = this.#baseOf(look);
    if (found?.cluster === cluster) return found;
    return this.#write(
      cluster,
      found?.revision ?? 0,
      found ? found.value + revisionOf(look.header) : 0,
      limit,
    );
  }

  /**
   * Writes a base that is at least `least` and at least the clock's time, unless the base was changed after `revision`.
   */
  async #write(
    cluster: string,
    revision: number,
    least: number,
    limit: number,
  ): Promise<Base & { readonly isMine: boolean }> {
    const value = Math.max(least, tokenAt(Date.now() + LEAD_MS));
    const reply = await this.transactions.runAnyway(
      {
        compare: [modifiedAt(this.name, revision)],
        success: [put(this.name, `${value} ${cluster}`)],
        failure: [get([this.name])],
      },
      limit,
    );
    if (reply.succeeded)
      return { name: this.name, value, cluster, revision: revisionOf(reply.header), isMine: true };
    const found = this.#baseOf(reply);
    if (!found)
      throw new Error(
        'another client has meanwhile deleted the number that is added to the revisions of etcd to make tokens',
      );
    return { ...found, isMine: false };
  }

  #baseOf(reply: TxnReply): Base | undefined {
    const [entry] = entriesAt(reply, 0);
    if (!entry) return undefined;
    const [value, cluster = ''] = entry.value.split(' ');
    return { name: this.name, value: Number(value), cluster, revision: entry.modified };
  }
}
