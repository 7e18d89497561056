import { ahead, inTheWay, permitsOf, slotFor, type WishedSlot, wishedSlot } from '../../core/admission.js';
import { elapsedSince, now } from '../../core/clock.js';
import { NoTimeError, NotSentError } from '../../core/errors.js';
import { tokenAt } from '../../core/fencing-token.js';
import type { LockKind } from '../../core/lock-mode.js';
import type { AcquireReply, AcquireRequest, Holder } from '../../core/ports.js';
import type { WaiterTurns } from '../../core/waiter-turns.js';
import { ZooKeeperError } from './client/zookeeper-error.js';
import type { HolderRecord } from './key-record.js';
import type { Decision, KeyRecords } from './key-records.js';
import {
  inOrderOfEnd,
  isSuspect,
  type KeyView,
  liveHolders,
  mostPermits,
  remainingOf,
  renewed,
  replaced,
  withHolders,
  without,
} from './key-view.js';
import type { LeaderClock } from './leader-clock.js';
import type { Leases } from './leases.js';
import { entryOf, type WaiterEntry, waiterName } from './names.js';

/**
 * Largest number of holders of a key. Each change writes the record of the key as a whole, and servers keep their last
 * 500 transactions in memory.
 */
export const MOST_HOLDERS = 100;

/** Largest number of holders that a refusal names when no permit of the key is free. */
const MOST_NAMED = 10;

/** Two requests of one waiter count as the same call if the times of arrival differ by at most this, in milliseconds. */
const SAME_CALL_MS = 5;

/** The decision on a request. */
export interface Verdict {
  readonly reply: AcquireReply;
  /** `true` if other callers wait for one of the keys. */
  readonly isContended?: boolean;
  /** The key in whose queue the waiter is. */
  readonly queuedAt?: string;
  /** `true` if the lease has left its slots. */
  readonly hasMoved?: boolean;
  /** `true` if the holder in the way may have crashed long ago, which another look at the leader's clock would show. */
  readonly isSuspect?: boolean;
}

export interface AcquisitionContext {
  readonly records: KeyRecords;
  readonly leases: Leases;
  readonly turns: WaiterTurns;
  readonly clock: LeaderClock;
  /** `true` to compare the times of writes, see `compareTimes` of the options. */
  readonly comparesTimes: boolean;
}

/** A request, and the values that all its rounds use. */
interface Asked {
  readonly request: AcquireRequest;
  readonly ordered: boolean;
  /** The time of the caller's arrival, in milliseconds since 1970. */
  readonly came: number;
}

/** Stores leases under their keys. */
export class Acquisitions {
  constructor(private readonly context: AcquisitionContext) {}

  async acquire(request: AcquireRequest, ordered: boolean): Promise<Verdict> {
    const { clock, comparesTimes } = this.context;
    const asked: Asked = { request, ordered, came: Date.now() - (request.position?.waited ?? 0) };
    const since = now();
    const verdict = await this.#ask(asked, since);
    if (!verdict.isSuspect || !comparesTimes) return verdict;
    await clock.read();
    return this.#ask(asked, since);
  }

  async #ask(asked: Asked, since: ReturnType<typeof now>): Promise<Verdict> {
    const { records, leases } = this.context;
    const { lease, limit, position } = asked.request;
    let compared: readonly KeyView[] = [];
    try {
      const decide = (views: readonly KeyView[]): Decision<Verdict> => {
        // The decision is sent in this turn of the event loop, or not at all: a lease that has ended must not be stored
        // (S15), and none after its time limit (S16).
        if (leases.hasEnded(lease)) throw new NotSentError();
        if (elapsedSince(since) >= limit)
          throw new NoTimeError(`was not stored within ${Math.ceil(limit)} ms`);
        compared = views;
        return this.#decide(asked, views);
      };
      // A waiter asks again. A caller that tries once must not be refused by a server that lags behind.
      const verdict = await records.change(lease.keys, decide, position === undefined);
      if (verdict.hasMoved) leases.movedOut(lease);
      if (verdict.reply.granted) leases.granted(lease, verdict.reply.token);
      return verdict;
    } catch (error) {
      if (error instanceof ZooKeeperError && !error.certain) leases.doubt(lease, compared);
      throw error;
    }
  }

  #decide(asked: Asked, views: readonly KeyView[]): Decision<Verdict> {
    const { lease, wish } = asked.request;
    const own = views.map((view) => liveHolders(view).find(({ id }) => id === lease.id));
    const moves =
      wish?.exactly === true && own.some((holder, at) => holder && holder.slot !== wish.slots[at]);
    if (moves) {
      const left = views.map((view) => without(view, lease.id));
      const { result, next = left } = this.#admit(asked, left);
      return { result: { ...result, hasMoved: true }, next };
    }
    const [first] = own;
    if (first && own.every((holder) => holder !== undefined))
      return again(views, own as readonly HolderRecord[], lease.ttl);
    if (own.some((holder) => holder !== undefined) || this.context.leases.wasGranted(lease))
      throw new Error('this lock was stored before, and has lost a key since');
    return this.#admit(asked, views);
  }

  #admit(asked: Asked, views: readonly KeyView[]): Decision<Verdict> {
    const ran = ranRefusal(asked, views);
    if (ran) return { result: { reply: ran } };
    return this.#heldRefusal(asked, views) ?? this.#queueRefusal(asked, views) ?? grant(asked, views);
  }

  /** The refusal because of the holders of a key. */
  #heldRefusal(asked: Asked, views: readonly KeyView[]): Decision<Verdict> | undefined {
    const { kind, keys } = asked.request.lease;
    for (const [at, view] of views.entries()) {
      const live = liveHolders(view);
      const rivals = rivalsOf(live, kind, wishedSlot(asked.request.wish, at));
      if (rivals.length === 0) continue;
      this.context.turns.end(keys[at] ?? '');
      const verdict = {
        reply: heldBy(view, live, rivals, kind),
        isSuspect: rivals.some((holder) => isSuspect(view, holder)),
      };
      return inQueue(asked, views, at, verdict);
    }
    return undefined;
  }

  /** The refusal because of a caller that came before; a first waiter that does not use its turn loses its entry. */
  #queueRefusal(asked: Asked, views: readonly KeyView[]): Decision<Verdict> | undefined {
    const { lease, position } = asked.request;
    const { kind, keys } = lease;
    if (!asked.ordered) return undefined;
    for (const [at, view] of views.entries()) {
      const holders = liveHolders(view);
      const mine = position && ownEntry(asked, view);
      const head = ahead({ holders, waiters: view.waiters }, kind, mine?.waiter, mine?.name);
      if (!head) continue;
      const rivals = rivalsOf(holders, head.kind);
      const left = rivals.length === 0 ? this.context.turns.left(keys[at] ?? '', head.name) : undefined;
      if (left !== undefined && left <= 0) {
        const waiters = view.waiters.filter((entry) => entry !== head);
        const others = views.map((each) => (each === view ? { ...view, waiters } : each));
        const { result, next = others } = this.#admit(asked, others);
        return { result, next };
      }
      const remaining = left ?? Math.max(...rivals.map((holder) => remainingOf(view, holder)));
      const holder: Holder = { id: head.waiter, owner: head.owner, remaining };
      return inQueue(asked, views, at, { reply: { granted: false, holder } });
    }
    return undefined;
  }
}

/**
 * Repeats a grant. The caller counts its ttl from the repeated request, but other processes count it from the first
 * stamp: so the lease needs a new one.
 */
function again(views: readonly KeyView[], own: readonly HolderRecord[], ttl: number): Decision<Verdict> {
  const slots = own.map(({ slot }) => slot).filter((slot) => slot !== undefined);
  const reply: AcquireReply = {
    ...{ granted: true, token: own[0]?.token ?? 0 },
    ...(slots.length > 0 ? { slots } : {}),
  };
  const next = views.map((view, at) => replaced(view, own[at]!, renewed(view, own[at]!, ttl)));
  return { result: { reply }, next };
}

function grant(asked: Asked, views: readonly KeyView[]): Decision<Verdict> {
  const { lease, since, position } = asked.request;
  const { id, owner, ttl, kind } = lease;
  const token = Math.max(tokenAt(Date.now()), ...views.map(({ record }) => record.token + 1));
  const lives = views.map(liveHolders);
  const slots = lives.map(
    (holders, at) => slotFor({ holders }, kind, wishedSlot(asked.request.wish, at)) ?? 0,
  );
  const hasSlots = kind.mode === 'permits';
  const next = views.map((view, at): KeyView => {
    const holder: HolderRecord = {
      ...{ id, token, renewals: 0, owner, since, sentAt: Date.now(), ttl, mode: kind.mode },
      ...(hasSlots ? { slot: slots[at] ?? 0, permits: kind.permits } : {}),
    };
    const held = withHolders(view, [...(lives[at] ?? []), holder]);
    return { ...held, record: { ...held.record, token }, waiters: afterGrant(asked, view, at) };
  });
  const permits = Math.max(...lives.map(mostPermits));
  const [first] = next[0]?.waiters ?? [];
  const mine = position && waiterName(position.waiter);
  const reply: AcquireReply = {
    ...{ granted: true, token },
    ...(hasSlots ? { slots } : {}),
    ...(permits > permitsOf(kind) ? { permits } : {}),
    ...(first && first.waiter === mine ? { nextIsFirst: true } : {}),
  };
  return { result: { reply, isContended: next.some((view) => hasOthers(view, mine)) }, next };
}

/** The queue of a key after the grant: the next call of the same process takes over the position. */
function afterGrant({ request, ordered }: Asked, view: KeyView, at: number): readonly WaiterEntry[] {
  const { position, lease } = request;
  if (!ordered || !position) return view.waiters;
  const { waiter, next } = position;
  const others = view.waiters.filter((entry) => entry.waiter !== waiterName(waiter));
  if (next !== undefined && at === 0)
    return inOrder([...others, entryOf(waiter, lease.kind, Date.now() - next)]);
  return others.length === view.waiters.length ? view.waiters : others;
}

/** Refuses the request, and keeps its waiter only in the queue of the key that refuses it. */
function inQueue(asked: Asked, views: readonly KeyView[], at: number, verdict: Verdict): Decision<Verdict> {
  const { ordered, request } = asked;
  const { position, lease } = request;
  const mine = position && waiterName(position.waiter);
  const isContended = views.some((view) => hasOthers(view, mine));
  if (!ordered || !position) return { result: { ...verdict, isContended } };
  const next = views.map((view, index) => {
    const kept = view.waiters.filter(
      (entry) => entry.waiter !== mine || (index === at && entry === ownEntry(asked, view)),
    );
    const hasOwn = index !== at || kept.some(({ waiter }) => waiter === mine);
    if (hasOwn && kept.length === view.waiters.length) return view;
    return { ...view, waiters: hasOwn ? kept : inOrder([...kept, ownEntry(asked, view)!]) };
  });
  const result = { ...verdict, isContended, queuedAt: lease.keys[at] ?? '' };
  return next.some((view, index) => view !== views[index]) ? { result, next } : { result };
}

/** The waiter's entry in the queue of a key; a new one if it has none, or the one of another call. */
function ownEntry({ request, came }: Asked, { waiters }: KeyView): WaiterEntry | undefined {
  const { position, lease } = request;
  if (!position) return undefined;
  const mine = waiterName(position.waiter);
  const found = waiters.find(
    ({ waiter, since }) => waiter === mine && Math.abs(since - came) <= SAME_CALL_MS,
  );
  return found ?? entryOf(position.waiter, lease.kind, came);
}

function inOrder(entries: readonly WaiterEntry[]): readonly WaiterEntry[] {
  return entries.toSorted((one, other) => (one.name < other.name ? -1 : 1));
}

function hasOthers({ waiters }: KeyView, mine: string | undefined): boolean {
  return waiters.some(({ waiter }) => waiter !== mine);
}

/** The refusal of a tick that has run. */
function ranRefusal({ request: { lease } }: Asked, views: readonly KeyView[]): AcquireReply | undefined {
  const { tick } = lease;
  const ran = tick && views[0]?.record.ticks[tick.schedule];
  if (!ran || ran.at < tick.at || ran.until <= Date.now()) return undefined;
  const { owner, until } = ran;
  const holder = { id: `${tick.schedule}:${owner}`, owner, remaining: until - Date.now() };
  return { granted: false, ran: true, holder };
}

/** The holders that exclude the lease. With too many readers this is the one whose lock ends first. */
function rivalsOf(
  holders: readonly HolderRecord[],
  kind: LockKind,
  wish?: WishedSlot,
): readonly HolderRecord[] {
  const rivals = inTheWay({ holders }, kind, wish);
  return rivals.length === 0 && kind.mode === 'shared' && holders.length >= MOST_HOLDERS ? holders : rivals;
}

function heldBy(
  view: KeyView,
  live: readonly HolderRecord[],
  rivals: readonly HolderRecord[],
  { mode }: LockKind,
): AcquireReply {
  const known = inOrderOfEnd(view, rivals);
  // The holder whose release makes room: among holders of the same mode the one that ends first, otherwise the last.
  const isFull = mode !== 'exclusive' && rivals[0]?.mode === mode;
  const [first, ...others] = isFull ? known : known.slice(-1);
  const refused = { granted: false, holder: first! } as const;
  if (mode !== 'permits' || !isFull) return refused;
  return { ...refused, others: others.slice(0, MOST_NAMED - 1), permits: mostPermits(live) };
}
