import { ahead, inTheWay, slotFor, wishedSlot } from '../../core/admission.js';
import type { Lease } from '../../core/lease.js';
import type { AcquireReply, Holder, KeyHolder } from '../../core/ports.js';
import type { RecentKeys } from '../../core/recent-keys.js';
import type { Tick } from '../../core/tick.js';
import { type Asked, type Round, timeLeft } from './attempt.js';
import type { Bases } from './bases.js';
import type { EtcdLeases } from './etcd-leases.js';
import { didNothing } from './gateway.js';
import {
  anyFreeSlot,
  type FoundHolder,
  type FoundWaiter,
  type KeyView,
  ranTickOf,
  viewOf,
  waiterValue,
} from './key-view.js';
import { tickOf, waiterName } from './names.js';
import type { QueueEntries } from './queue-entries.js';
import { entriesAt, type Entry, put, remove, type TxnReply } from './protocol.js';
import type { TxnRunner } from './txn-runner.js';
import type { WaiterTurns } from '../../core/waiter-turns.js';

/** Largest number of holders that a refusal names when no permit of the key is free. */
const MOST_NAMED = 10;

/**
 * The result of a round that did not store the lease: the answer to the caller, or `again` if another round must
 * follow, with the slots to request.
 */
export type Refusal = AcquireReply | { readonly again: true; readonly slots?: readonly number[] };

export interface RefusalContext {
  readonly transactions: TxnRunner;
  readonly leases: EtcdLeases;
  readonly bases: Bases;
  readonly queueEntries: QueueEntries;
  readonly turns: WaiterTurns;
  readonly waiters: RecentKeys;
}

/** Finds the reason of a refusal in the result of the transaction. */
export class Refusals {
  constructor(private readonly context: RefusalContext) {}

  async of(asked: Asked, round: Round, reply: TxnReply): Promise<Refusal> {
    const { bases, turns, transactions, queueEntries } = this.context;
    const { request, ordered, keys } = asked;
    const { lease, position, wish } = request;
    const { kind, tick } = lease;
    const { base, etcdLease } = round;
    let at = keys.length;
    if (entriesAt(reply, at)[0]?.value !== base.text) {
      bases.forget();
      return { again: true };
    }
    const fence = entriesAt(reply, ++at)[0]?.modified ?? 0;
    if (etcdLease.shared && fence !== etcdLease.fence) {
      etcdLease.fence = fence;
      return { again: true };
    }
    const ran = tick && entriesAt(reply, ++at).at(-1);
    if (tick && ran) return this.#hasRun(asked, tick, ran);
    const views = keys.map((key, index) => viewOf(key, entriesAt(reply, index)));
    for (const [index, key] of keys.entries()) {
      const view = views[index] as KeyView;
      const rivals = inTheWay(view, kind, wishedSlot(wish, index));
      if (rivals.length === 0) continue;
      turns.end(key);
      this.#noteOthers(asked, view);
      await this.#queueAt(key, asked, round);
      return this.#heldBy(rivals, lease, view);
    }
    for (const [index, key] of ordered ? keys.entries() : []) {
      const view = views[index] as KeyView;
      const mine = position && queueEntries.nameFor(key, position.waiter, asked.came);
      const head = ahead(view, kind, position && waiterName(position.waiter), mine);
      if (!head) continue;
      const rivals = inTheWay(view, head.kind);
      const left = rivals.length === 0 ? turns.left(key, head.name) : undefined;
      if (left !== undefined && left <= 0) {
        // The first waiter has not used its turn, so remove it from the queue.
        await transactions.run({ success: [remove(head.name)] }, timeLeft(asked));
        return { again: true };
      }
      this.#noteOthers(asked, view);
      await this.#queueAt(key, asked, round);
      return { granted: false, holder: await this.#turnOf(head, rivals, left) };
    }
    const slots = views.map((view, index) =>
      round.collided && !wish ? anyFreeSlot(view, kind) : slotFor(view, kind, wishedSlot(wish, index)),
    );
    return { again: true, slots: slots.map((slot) => slot ?? 0) };
  }

  /**
   * Refuses a tick if this tick or a later tick of the schedule has run. A tick without a planned time is refused while
   * the record of the previous tick exists. The clocks of the processes decide whether a record has expired, because
   * etcd counts in whole seconds, and so might keep the record too long.
   */
  async #hasRun(asked: Asked, tick: Tick, ran: Entry): Promise<Refusal> {
    const { key, lease } = ran;
    const { owner, until } = ranTickOf(ran);
    const left = until - Date.now();
    const ends = await this.context.leases.left([lease], timeLeft(asked));
    // etcd deletes a record up to a second late. If the clock says that a record has expired, ignore the record, even
    // if etcd keeps it for up to one second more.
    if (left <= 0 && (tick.at === 0 || (ends.get(lease) ?? 0) <= 1_000)) {
      await this.context.transactions.run({ success: [remove(key)] }, timeLeft(asked));
      return { again: true };
    }
    const remaining = Math.min(ends.get(lease) ?? 0, Math.max(left, 0));
    return { granted: false, ran: true, holder: { id: `${tickOf(key)}:${owner}`, owner, remaining } };
  }

  #noteOthers({ request }: Asked, { waiters }: KeyView): void {
    const mine = request.position && waiterName(request.position.waiter);
    if (waiters.some(({ waiter }) => waiter !== mine)) this.context.waiters.note(request.lease.keys);
  }

  /**
   * Adds a waiter to the queue of the key that refused it, and to no other queue: the waiter must not delay callers of
   * a free key.
   */
  async #queueAt(key: string, asked: Asked, { entry }: Round): Promise<void> {
    const { transactions, queueEntries } = this.context;
    const { position, lease } = asked.request;
    if (!position || !entry || entry.name.startsWith(`${key}\0`)) return;
    const name = queueEntries.nameFor(key, position.waiter, asked.came);
    queueEntries.addName(name, position.waiter);
    const value = waiterValue(position.waiter.owner.toWellFormed(), lease.kind);
    const success = [remove(entry.name), put(name, value, entry.etcdLease.id)];
    try {
      await transactions.run({ success }, timeLeft(asked));
      queueEntries.setName(name, position.waiter);
    } catch (error) {
      // The waiter may not be in the queue now. Its next request will add it. The transaction may add the entry late, when
      // the waiter has gone, so this etcd lease is not renewed any more.
      if (!didNothing(error)) entry.etcdLease.gone = true;
    }
  }

  async #heldBy(
    rivals: readonly FoundHolder[],
    { kind }: Lease,
    { holders }: KeyView,
  ): Promise<AcquireReply> {
    const left = await this.context.leases.left(rivals.map(({ etcdLease }) => etcdLease));
    const known = rivals
      .map((holder) => asKeyHolder(holder, left.get(holder.etcdLease) ?? Infinity))
      .toSorted((a, b) => a.remaining - b.remaining || (a.slot ?? 0) - (b.slot ?? 0));
    const isFull = kind.mode === 'permits' && rivals[0]?.mode === 'permits';
    // Name the holder whose release makes room. If permits are held and the caller asks for a permit, this is the holder
    // whose lock expires first, otherwise the holder whose lock expires last.
    const [holder, ...others] = isFull ? known : known.slice(-1);
    const refused = { granted: false, holder: holder as KeyHolder } as const;
    if (!isFull) return refused;
    const permits = Math.max(...holders.map((each) => each.permits));
    return { ...refused, others: others.slice(0, MOST_NAMED - 1), permits };
  }

  /** Describes a waiter as a holder that the caller waits for. */
  async #turnOf(
    head: FoundWaiter,
    rivals: readonly FoundHolder[],
    left: number | undefined,
  ): Promise<Holder> {
    const { waiter: id, owner } = head;
    if (left !== undefined) return { id, owner, remaining: left };
    const ends = await this.context.leases.left(rivals.map(({ etcdLease }) => etcdLease));
    return { id, owner, remaining: Math.max(...ends.values()) };
  }
}

export function asKeyHolder(holder: FoundHolder, remaining: number): KeyHolder {
  const { id, owner, since, mode, slot, base, revision } = holder;
  const known = { id, owner, since, mode, remaining, fencingToken: base + revision };
  return slot === undefined ? known : { ...known, slot };
}
