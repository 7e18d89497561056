import { permitsOf } from '../../core/admission.js';
import { elapsedSince, type Instant } from '../../core/clock.js';
import { NoTimeError } from '../../core/errors.js';
import type { AcquireRequest } from '../../core/ports.js';
import type { Base } from './bases.js';
import type { EtcdLease } from './etcd-leases.js';
import { holderValue, viewOf, waiterValue } from './key-view.js';
import { queueOf, rivalsOf, slotsFrom, ticksFrom, viewRange } from './names.js';
import type { Next, QueueEntries } from './queue-entries.js';
import {
  absent,
  entriesAt,
  get,
  hasValue,
  modifiedAt,
  put,
  remove,
  type Txn,
  type TxnReply,
} from './protocol.js';

/** One request to acquire, and the values that all its rounds use. */
export interface Asked {
  readonly request: AcquireRequest;
  readonly since: Instant;
  readonly ordered: boolean;
  /** The names of the keys in etcd. */
  readonly keys: readonly string[];
  /** The time of the request, by the monotonic clock; for a waiter, the time of its first request. */
  readonly came: number;
}

/**
 * The plan of one round: the comparisons and the writes of its transaction. A round is one attempt to store the lease.
 */
export interface Round {
  readonly base: Base;
  readonly etcdLease: EtcdLease;
  readonly slots: readonly number[];
  /**
   * `true` after another caller took the chosen slot first. Callers that ask at the same time must then choose
   * different slots.
   */
  readonly collided: boolean;
  readonly names: readonly string[];
  /**
   * `true` if the transaction need not check the queue: the last read showed that this lease delays no earlier waiter,
   * or the request ignores the queue (`ordered` is `false`).
   */
  readonly passes: boolean;
  readonly entry: QueueEntry | undefined;
  readonly next: Next | undefined;
}

/** The position of a refused waiter in the queue, and the etcd lease with which it expires. */
export interface QueueEntry {
  readonly name: string;
  readonly etcdLease: EtcdLease;
}

/** Stores the lease if its keys are free. Otherwise reads their holders, and adds the waiter to the queue. */
export function transactionOf(asked: Asked, round: Round, queueEntries: QueueEntries): Txn {
  const { request, ordered, keys } = asked;
  const { lease, since, position } = request;
  const { base, etcdLease, slots, names, passes, entry, next } = round;
  const { id, kind, tick } = lease;
  const owner = lease.owner.toWellFormed();
  const compare = [hasValue(base.name, base.text)];
  if (etcdLease.shared) compare.push(modifiedAt(etcdLease.fenceName, etcdLease.fence));
  const ticks = tick && ticksFrom(keys[0] ?? '', tick.schedule, tick.at);
  if (ticks) compare.push(absent(ticks));
  for (const [index, key] of keys.entries()) {
    compare.push(...rivalsOf(key, kind, slots[index] ?? 0).map(absent));
    if (passes) continue;
    const [first, end] = queueOf(key);
    compare.push(absent([first, position ? queueEntries.nameFor(key, position.waiter, asked.came) : end]));
  }
  const value = holderValue({ id, owner, since, permits: permitsOf(kind), base: base.value });
  const success = names.map((name) => put(name, value, etcdLease.id));
  if (kind.mode === 'permits') success.push(...keys.flatMap((key) => limitsOf(key, kind.permits)));
  const failure = keys.map((key) => get(viewRange(key)));
  failure.push(get([base.name]), get([etcdLease.fenceName], { keys_only: true }));
  if (ticks) failure.push(get(ticks));
  if (ordered && position && entry) {
    const queued = queueEntries.all(position.waiter);
    const { waiter } = position;
    success.push(...queued.filter((name) => name !== next?.name).map(remove));
    if (next)
      success.push(put(next.name, waiterValue(waiter.owner.toWellFormed(), kind), entry.etcdLease.id));
    failure.push(...queued.filter((name) => name !== entry.name).map(remove));
    failure.push(put(entry.name, waiterValue(waiter.owner.toWellFormed(), kind), entry.etcdLease.id));
  }
  // This read must be the last, because `Acquisitions.#granted` takes the last response.
  if (ordered) success.push(get(queueOf(keys[0] ?? ''), { limit: 1, keys_only: true }));
  return { compare, success, failure };
}

/** Number of holders whose number of permits a grant reads. */
const MOST_COMPARED = 5;

/**
 * The operations of a grant that show whether another caller asked for more permits. They read a few holders, and one
 * holder in a slot that only a caller with a larger number can have.
 */
function limitsOf(key: string, permits: number): readonly object[] {
  return [get(slotsFrom(key, 0), { limit: MOST_COMPARED }), get(slotsFrom(key, permits), { limit: 1 })];
}

/** The largest number of permits that a grant has found, see {@link limitsOf}. */
export function permitsSeen({ keys }: Asked, { names }: Round, reply: TxnReply): number {
  const holders = keys.flatMap((key, index) => {
    const at = names.length + 2 * index;
    return viewOf(key, [...entriesAt(reply, at), ...entriesAt(reply, at + 1)]).holders;
  });
  return Math.max(...holders.map(({ permits }) => permits));
}

/**
 * Milliseconds that are left of the caller's time limit.
 *
 * @throws NoTimeError when the time limit has passed
 */
export function timeLeft({
  request,
  since,
}: {
  readonly request: Pick<AcquireRequest, 'limit'>;
  readonly since: Instant;
}): number {
  const left = request.limit - elapsedSince(since);
  if (left <= 0) throw new NoTimeError('no time was left to send the request');
  return left;
}
