import { LEAD_MS, tokenAt } from '../../core/fencing-token.js';
import { absent, entriesAt, get, modifiedAt, put, revisionOf } from './protocol.js';
import type { Transactions } from './transactions.js';

/** How long a raise may take that nobody waits for, in milliseconds. */
const RAISE_LIMIT_MS = 5_000;

/** What is added to a revision of the cluster, and the revision at which that was written. */
export interface Base {
  /** Of its key. */
  readonly name: string;
  readonly value: number;
  readonly revision: number;
}

/**
 * The number that makes fencing tokens of revisions. Revisions of a new cluster begin at 1, and a resource that has seen the
 * tokens of another store, which follow the clock, would refuse all of them.
 */
export class Bases {
  #base: Promise<Base> | undefined;
  /** What the revision had gone back from when the base was asked for. */
  #wentBackFrom: number | undefined;

  constructor(
    private readonly transactions: Transactions,
    private readonly name: string,
  ) {
    transactions.onWentBack = () => void this.get(RAISE_LIMIT_MS).catch(() => undefined);
  }

  /** Where the revision has gone back, it is raised first, so that tokens go on above those of before. */
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

  /** It is not what it was: written anew, or gone with all that was there. */
  forget(): void {
    this.#base = undefined;
  }

  /**
   * The revision has gone back, as after the restore of an older copy. All other processes notice the new base, as they compare
   * it in every acquisition.
   */
  async #raised(before: number, limit: number): Promise<Base> {
    const { value, revision } = await this.#load(limit);
    const raised = Math.max(value + before, tokenAt(Date.now() + LEAD_MS));
    const { succeeded, header } = await this.transactions.runAnyway(
      { compare: [modifiedAt(this.name, revision)], success: [put(this.name, String(raised))] },
      limit,
    );
    if (!succeeded) throw new Error('another process has changed the base of tokens meanwhile');
    if (this.transactions.wentBackFrom === before)
      this.transactions.wentBackFrom = this.#wentBackFrom = undefined;
    return { name: this.name, value: raised, revision: revisionOf(header) };
  }

  /**
   * Asks for the right to read and to write it, and writes nothing: no key is changed at revision 1, which is that of an
   * empty etcd. Rights are looked at for all that a transaction could do.
   */
  async tryToWrite(limit: number): Promise<void> {
    const [compare, success] = [[modifiedAt(this.name, 1)], [put(this.name, '')]];
    await this.transactions.run({ compare, success }, limit);
  }

  async #load(limit: number): Promise<Base> {
    const value = tokenAt(Date.now() + LEAD_MS);
    const reply = await this.transactions.runAnyway(
      {
        compare: [absent([this.name])],
        success: [put(this.name, String(value))],
        failure: [get([this.name])],
      },
      limit,
    );
    if (reply.succeeded) return { name: this.name, value, revision: revisionOf(reply.header) };
    const [entry] = entriesAt(reply, 0);
    return { name: this.name, value: Number(entry?.value), revision: entry?.modified ?? 0 };
  }
}
