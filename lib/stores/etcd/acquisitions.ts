import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { NoTimeError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { AcquireReply, AcquireRequest, Holder, KeyHolder, QueuePosition } from '../../core/ports.js';
import type { RecentWaiters } from '../../core/recent-waiters.js';
import type { Tick } from '../../core/tick.js';
import type { Base, Bases } from './bases.js';
import { type EtcdLease, type EtcdLeases, limitOf, secondsOf } from './etcd-leases.js';
import { GatewayError } from './gateway.js';
import type { Hold, Holds } from './holds.js';
import {
  ahead,
  type FoundHolder,
  type FoundPlace,
  holderValue,
  inTheWay,
  type KeyView,
  permitsOf,
  placeValue,
  ranTickOf,
  type SlotOf,
  slotFor,
  viewOf,
} from './key-view.js';
import {
  holderName,
  type Names,
  placesOf,
  rivalsOf,
  tickOf,
  ticksFrom,
  viewRange,
  waiterName,
  wellFormed,
} from './names.js';
import type { Next, Places } from './places.js';
import {
  absent,
  entriesAt,
  type Entry,
  get,
  modifiedAt,
  MOST_OPERATIONS,
  put,
  remove,
  revisionOf,
  type Txn,
  type TxnReply,
} from './protocol.js';
import type { Releases } from './releases.js';
import { RevisionWentBackError, type Transactions } from './transactions.js';
import type { Turns } from './turns.js';

/** How often one request is asked again that was refused by what is gone by now. */
const MOST_ROUNDS = 16;

/** So many holders of a full key are named in a refusal. */
const MOST_NAMED = 10;

/** How long the places of a process stay in line that has died, in seconds; it is passed over much sooner. */
const PLACE_SECONDS = 60;

export interface AcquireContext {
  readonly transactions: Transactions;
  readonly leases: EtcdLeases;
  /** Of places in line, apart from those of locks. */
  readonly placeLeases: EtcdLeases;
  readonly names: Names;
  readonly holds: Holds;
  readonly releases: Releases;
  readonly bases: Bases;
  readonly places: Places;
  readonly turns: Turns;
  readonly waiters: RecentWaiters;
}

/** One request, and what it goes by. */
interface Asked {
  readonly request: AcquireRequest;
  readonly since: Instant;
  readonly ordered: boolean;
  /** As they are called in etcd. */
  readonly keys: readonly string[];
  /** Of one who waits; when the call came, by the monotonic clock. */
  readonly came: number;
}

/** How one round goes about it. */
interface Round {
  readonly base: Base;
  readonly etcdLease: EtcdLease;
  readonly slots: readonly number[];
  readonly names: readonly string[];
  /** It was seen that nobody in line stays out because of it. */
  readonly passes: boolean;
  readonly place: PlaceAt | undefined;
  readonly next: Next | undefined;
}

/** Where one who is refused stands, and with what that ends. */
interface PlaceAt {
  readonly name: string;
  readonly etcdLease: EtcdLease;
}

/** What a round that did not store it came to: an answer, or another one with these slots. */
type Refusal = AcquireReply | { readonly again: true; readonly slots?: readonly number[] };

/** Stores leases, each in one transaction that compares what must not be there, and says what is there if it is. */
export class Acquisitions {
  constructor(private readonly context: AcquireContext) {}

  async acquire(request: AcquireRequest, ordered: boolean): Promise<AcquireReply> {
    const { names, holds, leases } = this.context;
    const { lease } = request;
    const asked: Asked = {
      request,
      ordered,
      since: now(),
      keys: lease.keys.map((key) => names.of(key)),
      came: performance.now() - (request.position?.waited ?? 0),
    };
    if (holds.hasEnded(lease)) throw new Error('this lease was stored before, and has ended');
    const reason = whyNot(asked);
    if (reason) throw reason;
    const hold = holds.of(lease);
    if (hold) {
      const reply = await this.#again(asked, hold);
      if (reply) return reply;
    }
    const seconds = secondsOf(lease.ttl);
    const etcdLease =
      hold?.etcdLease ??
      (request.renewed === true
        ? await leases.shared(seconds, timeLeft(asked))
        : await leases.own(seconds, timeLeft(asked)));
    return this.#insist(asked, etcdLease);
  }

  async #insist(asked: Asked, first: EtcdLease): Promise<AcquireReply> {
    const { bases, leases, places } = this.context;
    const { request, ordered, keys } = asked;
    const { lease, position, wish } = request;
    let etcdLease = first;
    let slots = wish?.slots ?? keys.map(() => 0);
    let passes = !ordered;
    for (let count = 0; count < MOST_ROUNDS; count++) {
      const base = await bases.get(timeLeft(asked));
      const round: Round = {
        base,
        etcdLease,
        slots,
        passes,
        names: keys.map((key, index) => holderName(key, lease.kind.mode, lease.id, slots[index])),
        place: ordered && position ? await this.#place(asked, position) : undefined,
        next: position && places.nextAt(keys[0] ?? '', position),
      };
      // What has ended is not started: its release would leave it to its ttl (S15).
      if (lease.ended) {
        leases.giveBack(etcdLease);
        throw new Error('given up before it could be asked');
      }
      let reply: TxnReply;
      try {
        reply = await this.context.transactions.run(transactionOf(asked, round, places), timeLeft(asked));
      } catch (error) {
        const replaced = await this.#failed(asked, round, error);
        if (!replaced) throw error;
        etcdLease = replaced;
        continue;
      }
      if (reply.succeeded) return this.#granted(asked, round, reply);
      if (round.place && position) places.stands(round.place.name, position.waiter);
      const refusal = await this.#refused(asked, round, reply);
      if ('granted' in refusal) {
        leases.giveBack(etcdLease);
        return refusal;
      }
      if (refusal.slots) {
        slots = refusal.slots;
        passes = true;
      }
    }
    leases.giveBack(etcdLease);
    throw new Error(`was asked ${MOST_ROUNDS} times, and what was in the way had gone each time`);
  }

  /** Where one who waits is to stand if it is refused: where it stands already, else at the first key. */
  async #place(asked: Asked, { waiter }: QueuePosition): Promise<PlaceAt> {
    const { places, placeLeases } = this.context;
    const { keys, came } = asked;
    const standing = places.all(waiter);
    const key = keys.find((each) => standing.some((name) => name.startsWith(`${each}\0`))) ?? keys[0] ?? '';
    const name = places.nameFor(key, waiter, came);
    places.mayStand(name, waiter);
    return { name, etcdLease: await placeLeases.shared(PLACE_SECONDS, timeLeft(asked)) };
  }

  #granted(
    { request, ordered }: Asked,
    { base, etcdLease, names, slots, next }: Round,
    reply: TxnReply,
  ): AcquireReply {
    const { holds, places, waiters } = this.context;
    const { lease, position } = request;
    const token = base.value + revisionOf(reply.header);
    const known = lease.kind.mode === 'permits' ? slots : undefined;
    holds.add(lease, { etcdLease, names, token, slots: known });
    if (!Number.isSafeInteger(token))
      throw new Error(
        'fencing token out of range: the clock was wrong when the first lock was made in this etcd',
      );
    if (position) places.granted(position.waiter, next);
    const [first] = ordered ? entriesAt(reply, (reply.responses?.length ?? 0) - 1) : [];
    if (first && first.key !== next?.name) waiters.note(lease.keys);
    return {
      granted: true,
      token,
      validFrom: etcdLease.confirmed,
      ...(next && first?.key === next.name ? { nextIsFirst: true } : {}),
      ...(known ? { slots: known } : {}),
    };
  }

  /** Asked twice it grants again, the same; unless it is to have other slots now, for which it gives up those. */
  async #again(asked: Asked, hold: Hold): Promise<AcquireReply | undefined> {
    const { lease, wish } = asked.request;
    if (wish?.exactly && hold.slots?.some((slot, index) => slot !== wish.slots[index])) {
      await this.context.releases.giveUp(lease, hold);
      return undefined;
    }
    const { names, token, slots, etcdLease } = hold;
    const look = { success: names.map((name) => get([name], { keys_only: true })) };
    const reply = await this.context.transactions.run(look, timeLeft(asked));
    if (names.some((_, index) => entriesAt(reply, index).length === 0))
      throw new Error('this lease was stored before, and a part of it is gone');
    return { granted: true, token, validFrom: etcdLease.confirmed, ...(slots ? { slots } : {}) };
  }

  /**
   * There is no answer, or an error.
   *
   * @returns what the lock can end with in place of a lease that is no more; nothing where it makes no sense to ask again
   */
  async #failed(
    asked: Asked,
    { etcdLease, names, place }: Round,
    error: unknown,
  ): Promise<EtcdLease | undefined> {
    const { leases, placeLeases, bases, releases } = this.context;
    const { lease, renewed } = asked.request;
    if (error instanceof RevisionWentBackError) {
      releases.doubt(lease, etcdLease, names);
      await bases.raise(error.before, limitOf(lease.ttl));
      return undefined;
    }
    if (!(error instanceof GatewayError)) return undefined;
    if (!error.certain) {
      releases.doubt(lease, etcdLease, names);
      return undefined;
    }
    if (!error.isNotFound) {
      leases.giveBack(etcdLease);
      return undefined;
    }
    // One of the two is no more; etcd does not say which.
    const both = [etcdLease, ...(place ? [place.etcdLease] : [])];
    const left = await leases.left(
      both.map(({ id }) => id),
      timeLeft(asked),
    );
    for (const each of both) if (left.get(each.id) === 0) each.gone = true;
    if (place?.etcdLease.gone) await placeLeases.shared(PLACE_SECONDS, timeLeft(asked));
    if (!etcdLease.gone) return etcdLease;
    const seconds = secondsOf(lease.ttl);
    return renewed === true ? leases.shared(seconds, timeLeft(asked)) : leases.own(seconds, timeLeft(asked));
  }

  async #refused(asked: Asked, round: Round, reply: TxnReply): Promise<Refusal> {
    const { bases, turns, transactions, places } = this.context;
    const { request, ordered, keys } = asked;
    const { lease, position, wish } = request;
    const { kind, tick } = lease;
    const { base, etcdLease } = round;
    let at = keys.length;
    if (entriesAt(reply, at)[0]?.modified !== base.revision) {
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
      const rivals = inTheWay(view, kind, slotAt(wish, index));
      if (rivals.length === 0) continue;
      turns.end(key);
      this.#noteOthers(asked, view);
      await this.#standAt(key, asked, round);
      return this.#heldBy(rivals, lease, base, view);
    }
    for (const [index, key] of ordered ? keys.entries() : []) {
      const view = views[index] as KeyView;
      const mine = position && places.nameFor(key, position.waiter, asked.came);
      const head = ahead(view, kind, position && waiterName(position.waiter), mine);
      if (!head) continue;
      const rivals = inTheWay(view, head.kind);
      const left = rivals.length === 0 ? turns.left(key, head.name) : undefined;
      if (left !== undefined && left <= 0) {
        // It has not taken its turn.
        await transactions.run({ success: [remove(head.name)] }, timeLeft(asked));
        return { again: true };
      }
      this.#noteOthers(asked, view);
      await this.#standAt(key, asked, round);
      return { granted: false, holder: await this.#turnOf(head, rivals, left) };
    }
    const slots = views.map((view, index) => slotFor(view, kind, slotAt(wish, index)));
    return { again: true, slots: slots.map((slot) => slot ?? 0) };
  }

  /**
   * The tick or a later one has run. Of ticks without instants, which are told apart by how long they are remembered, etcd
   * remembers each by whole seconds, so that one could be refused for the one before it: the clocks decide.
   */
  async #hasRun(asked: Asked, tick: Tick, { key, value, lease }: Entry): Promise<Refusal> {
    const { owner, until } = ranTickOf(value);
    const left = until - Date.now();
    if (tick.at === 0 && left <= 0) {
      await this.context.transactions.run({ success: [remove(key)] }, timeLeft(asked));
      return { again: true };
    }
    const ends = await this.context.leases.left([lease], timeLeft(asked));
    const remaining = Math.min(ends.get(lease) ?? 0, Math.max(left, 0));
    return { granted: false, ran: true, holder: { id: `${tickOf(key)}:${owner}`, owner, remaining } };
  }

  #noteOthers({ request }: Asked, { places }: KeyView): void {
    const mine = request.position && waiterName(request.position.waiter);
    if (places.some(({ waiter }) => waiter !== mine)) this.context.waiters.note(request.lease.keys);
  }

  /** One who waits stands at the key that was refused, and at no other: it must not keep others from a key that is free. */
  async #standAt(key: string, asked: Asked, { place }: Round): Promise<void> {
    const { transactions, places } = this.context;
    const { position, lease } = asked.request;
    if (!position || !place || place.name.startsWith(`${key}\0`)) return;
    const name = places.nameFor(key, position.waiter, asked.came);
    places.mayStand(name, position.waiter);
    const value = placeValue(wellFormed(position.waiter.owner), lease.kind);
    const success = [remove(place.name), put(name, value, place.etcdLease.id)];
    try {
      await transactions.run({ success }, timeLeft(asked));
      places.stands(name, position.waiter);
    } catch {
      // It is not in line, and asks again.
    }
  }

  async #heldBy(
    rivals: readonly FoundHolder[],
    { kind }: Lease,
    { value }: Base,
    { holders }: KeyView,
  ): Promise<AcquireReply> {
    const left = await this.context.leases.left(rivals.map(({ etcdLease }) => etcdLease));
    const known = rivals
      .map((holder) => asKeyHolder(holder, value, left.get(holder.etcdLease) ?? Infinity))
      .toSorted((a, b) => a.remaining - b.remaining || (a.slot ?? 0) - (b.slot ?? 0));
    const isFull = kind.mode === 'permits' && rivals[0]?.mode === 'permits';
    // Of permits the first one's end makes room, else the last one's.
    const [holder, ...others] = isFull ? known : known.slice(-1);
    const refused = { granted: false, holder: holder as KeyHolder } as const;
    if (!isFull) return refused;
    const permits = Math.max(...holders.map((each) => each.permits));
    return { ...refused, others: others.slice(0, MOST_NAMED - 1), permits };
  }

  /** One who waits is in the way. */
  async #turnOf(head: FoundPlace, rivals: readonly FoundHolder[], left: number | undefined): Promise<Holder> {
    const { waiter: id, owner } = head;
    if (left !== undefined) return { id, owner, remaining: left };
    const ends = await this.context.leases.left(rivals.map(({ etcdLease }) => etcdLease));
    return { id, owner, remaining: Math.max(...ends.values()) };
  }
}

export function asKeyHolder(holder: FoundHolder, base: number, remaining: number): KeyHolder {
  const { id, owner, since, mode, slot, revision } = holder;
  const known = { id, owner, since, mode, remaining, fencingToken: base + revision };
  return slot === undefined ? known : { ...known, slot };
}

function transactionOf(asked: Asked, round: Round, places: Places): Txn {
  const { request, ordered, keys } = asked;
  const { lease, since, position } = request;
  const { base, etcdLease, slots, names, passes, place, next } = round;
  const { kind, tick, owner } = lease;
  const compare = [modifiedAt(base.name, base.revision)];
  if (etcdLease.shared) compare.push(modifiedAt(etcdLease.fenceName, etcdLease.fence));
  const ticks = tick && ticksFrom(keys[0] ?? '', tick.schedule, tick.at);
  if (ticks) compare.push(absent(ticks));
  for (const [index, key] of keys.entries()) {
    compare.push(...rivalsOf(key, kind, slots[index] ?? 0).map(absent));
    if (passes) continue;
    const [first, end] = placesOf(key);
    compare.push(absent([first, position ? places.nameFor(key, position.waiter, asked.came) : end]));
  }
  const value = holderValue(wellFormed(owner), since, permitsOf(kind));
  const success = names.map((name) => put(name, value, etcdLease.id));
  const failure = keys.map((key) => get(viewRange(key)));
  failure.push(get([base.name], { keys_only: true }), get([etcdLease.fenceName], { keys_only: true }));
  if (ticks) failure.push(get(ticks));
  if (ordered && position && place) {
    const standing = places.all(position.waiter);
    const { waiter } = position;
    success.push(...standing.filter((name) => name !== next?.name).map(remove));
    if (next) success.push(put(next.name, placeValue(wellFormed(waiter.owner), kind), place.etcdLease.id));
    failure.push(...standing.filter((name) => name !== place.name).map(remove));
    failure.push(put(place.name, placeValue(wellFormed(waiter.owner), kind), place.etcdLease.id));
  }
  // The last one, which `#granted` reads.
  if (ordered) success.push(get(placesOf(keys[0] ?? ''), { limit: 1, keys_only: true }));
  return { compare, success, failure };
}

/** Why it cannot be stored, if it cannot. */
function whyNot({ keys, request }: Asked): Error | undefined {
  if (keys.some((key) => key.includes('\0'))) return new Error('cannot store a key with a NUL character');
  const each = request.lease.kind.mode === 'permits' ? 4 : 2;
  const most = Math.floor((MOST_OPERATIONS - 3) / each);
  if (keys.length > most)
    return new Error(`cannot store a lock of ${keys.length} keys: ${most} are the most of one transaction`);
  return undefined;
}

function slotAt(wish: AcquireRequest['wish'], index: number): SlotOf | undefined {
  return wish && { slot: wish.slots[index] ?? 0, exactly: wish.exactly };
}

/** @throws NoTimeError when nobody waits for the answer any more */
function timeLeft({ request, since }: Asked): number {
  const left = request.limit - elapsedSince(since);
  if (left <= 0) throw new NoTimeError('there was no time left to ask');
  return left;
}
