import { LEAD_MS, tokenAt } from '../../core/fencing-token.js';
import { entriesAt, get, modifiedAt, put, revisionOf, type TxnReply } from './protocol.js';
import type { Transactions } from './transactions.js';

/** How long a raise may take that nobody waits for, in milliseconds. */
const RAISE_LIMIT_MS = 5_000;

/** What is added to a revision of the cluster, and the revision at which that was written. */
export interface Base {
  /** Of its key. */
  readonly name: string;
  readonly value: number;
  /** The id of the cluster where it was written. */
  readonly cluster: string;
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
    const base = await this.#load(limit);
    const raised = await this.#write(base.cluster, base.revision, base.value + before, limit);
    if (!raised.isMine) throw new Error('another process has changed the base of tokens meanwhile');
    if (this.transactions.wentBackFrom === before)
      this.transactions.wentBackFrom = this.#wentBackFrom = undefined;
    return raised;
  }

  /**
   * Asks for the right to read and to write it, and writes nothing: no key is changed at revision 1, which is that of an
   * empty etcd. Rights are looked at for all that a transaction could do.
   */
  async tryToWrite(limit: number): Promise<void> {
    const [compare, success] = [[modifiedAt(this.name, 1)], [put(this.name, '')]];
    await this.transactions.run({ compare, success }, limit);
  }

  /**
   * Also raises it in a cluster that is another than where it was written. Such a one was made of a copy, and tokens that were
   * given after that are not known in it: none of them was ahead of the clock.
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

  /** Writes one that is no smaller than `least`, or than what the clock says; unless it was changed after `revision`. */
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
    if (!found) throw new Error('somebody has deleted the base of tokens meanwhile');
    return { ...found, isMine: false };
  }

  #baseOf(reply: TxnReply): Base | undefined {
    const [entry] = entriesAt(reply, 0);
    if (!entry) return undefined;
    const [value, cluster = ''] = entry.value.split(' ');
    return { name: this.name, value: Number(value), cluster, revision: entry.modified };
  }
}
