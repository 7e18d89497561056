import { LEAD_MS, tokenAt } from '../../core/fencing-token.js';
import { absent, entriesAt, get, modifiedAt, put, revisionOf } from './protocol.js';
import type { Transactions } from './transactions.js';

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

  constructor(
    private readonly transactions: Transactions,
    private readonly name: string,
  ) {}

  get(limit: number): Promise<Base> {
    if (!this.#base) {
      const base = this.#load(limit);
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
   * The revision has gone back, as after the restore of an older copy: tokens go on above those of before. All other
   * processes notice, as they compare the base in every acquisition.
   */
  async raise(before: number, limit: number): Promise<void> {
    const { value, revision } = await this.get(limit);
    const raised = Math.max(value + before, tokenAt(Date.now() + LEAD_MS));
    this.forget();
    await this.transactions.run(
      { compare: [modifiedAt(this.name, revision)], success: [put(this.name, String(raised))] },
      limit,
    );
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
    const reply = await this.transactions.run(
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
