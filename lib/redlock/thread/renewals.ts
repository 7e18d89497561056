import { elapsedSince, type Instant } from '../../core/clock.js';
import { LockLostError, LockUnavailableError, asError } from '../../core/errors.js';
import { type CopiedLease, Lease } from '../../core/lease.js';
import type { Store } from '../../core/ports.js';
import { ClockWatch } from '../clock-watch.js';
import type { HeldLock, LeaseContext } from '../held-lock.js';
import { Nodes } from '../nodes.js';
import type { RedlockSettings } from '../redlock-settings.js';
import { type Mirror, WHY } from '../renewal-ports.js';
import { usableTtl } from '../validity.js';
import { Watchdog } from '../watchdog.js';
import { AdoptedLock } from './adopted-lock.js';
import { BEAT_MS, type Beats, BlockedTime } from './liveness.js';
import { LockSlots } from './lock-slots.js';
import {
  type Adopt,
  type Extend,
  type FromThread,
  type SentFailure,
  sentVotes,
  type SlotName,
  type ToThread,
} from './messages.js';
import { fromSharedTime } from './shared-clock.js';

/** A lock of another thread. */
interface Adopted {
  readonly lock: AdoptedLock;
  /** `true` after the other thread has taken the renewal back. Another lock may then get the slot. */
  isReturned: boolean;
}

/**
 * Renews locks that another thread of the process holds: the part that runs in the thread. Makes an {@link AdoptedLock} of
 * each, and does what the other thread asks for.
 */
export class Renewals {
  readonly #blocks = new Map<number, LockSlots>();
  /** The locks by the numbers of their hand-overs. */
  readonly #locks = new Map<number, Adopted>();
  readonly #held = new Set<HeldLock>();
  /**
   * Lost locks that a node may store once more, with the time of the monotonic clock at which they have expired there
   * in any case. Until then their release must be repeated by this thread (S15).
   */
  readonly #lost = new Map<number, { readonly name: SlotName; readonly until: number }>();
  /** The locks that were not renewed while the other thread was blocked, with their `maxBlocked`. */
  readonly #paused = new Map<AdoptedLock, number>();
  readonly #context: LeaseContext;
  readonly #blocked: BlockedTime;
  readonly #timer: NodeJS.Timeout;

  constructor(
    stores: readonly Store[],
    private readonly settings: RedlockSettings,
    beats: Beats,
    private readonly post: (message: FromThread) => void,
  ) {
    this.#blocked = new BlockedTime(beats);
    const watchdog = new Watchdog(settings.nodeTimeout);
    const clocks = new ClockWatch(stores, {
      setBack: () => [...this.#held].forEach((lock) => lock.setBack()),
      overslept: (asleep, paused) => {
        for (const lock of [...this.#held]) lock.overslept(paused);
        watchdog.bringForward(asleep + paused);
      },
    });
    this.#context = {
      settings,
      nodes: new Nodes(stores),
      watchdog,
      clocks,
      closing: new AbortController().signal,
      ended: (lock) => {
        this.#held.delete(lock);
        if (this.#held.size === 0) clocks.end();
      },
      unconfirmed: () => undefined,
      busy: () => () => undefined,
    };
    this.#timer = setInterval(() => this.#look(), BEAT_MS).unref();
  }

  receive(message: Exclude<ToThread, { readonly kind: 'connect' | 'close' }>): void {
    // The message may be about a lock that was offered before.
    this.#takeOffers();
    switch (message.kind) {
      case 'look':
        return;
      case 'block':
        return void this.#blocks.set(message.block, new LockSlots(message.memory));
      case 'adopt':
        return this.#adopt(message);
      case 'extend':
        return void this.#extend(message);
      case 'end':
        return this.#end(message);
      case 'return':
        this.#return(message);
    }
  }

  /** Sends what is collected, and ends all timers. The locks are ended by then, or lapse. */
  close(): void {
    clearInterval(this.#timer);
    this.#context.nodes.flush();
    this.#context.clocks.end();
  }

  /** Adopts the locks that the other thread has written to shared memory. */
  #takeOffers(): void {
    for (const slots of this.#blocks.values())
      for (const text of slots.take()) this.#adopt(JSON.parse(text) as Adopt);
  }

  #adopt(adopted: Adopt): void {
    const { block, slot, handOver, fencingToken, ttl, ends, isUnconfirmed, maxHold, maxBlocked } = adopted;
    const { guard, keptUntil } = adopted;
    const slots = this.#blocks.get(block)!;
    this.settings.guard.note(guard);
    const name: SlotName = { block, slot, handOver };
    const isEnded = (): boolean => !entry.isReturned && slots.isEnded(slot);
    const isTakenBack = (): boolean => entry.isReturned || !slots.isRenewed(slot);
    const keepFor = keptUntil === undefined ? 0 : Math.max(0, fromSharedTime(keptUntil) - performance.now());
    const lease = Lease.copied(adopted.lease, keepFor, isEnded, isTakenBack);
    // The validity that a quorum has confirmed for the other thread began one usable ttl before its end.
    const usable = usableTtl(ttl, this.settings.driftFactor);
    const validFrom = before(usable, ends);
    const isPaused = (): boolean => this.#blocked.look() >= maxBlocked;
    const lock = new AdoptedLock(lease, fencingToken, this.#context, validFrom, elapsedSince(validFrom), {
      renew: true,
      ttl,
      ...(adopted.replaced && { replaced: adopted.replaced.map(endedCopy) }),
      ...(maxHold && { maxHold: maxHold.duration, since: before(0, maxHold.since) }),
    });
    const entry: Adopted = { lock, isReturned: false };
    this.#locks.set(handOver, entry);
    this.#held.add(lock);
    if (this.#held.size === 1) this.#context.clocks.begin();
    const mirror: Mirror = {
      get isRenewed() {
        return !isTakenBack();
      },
      get mayRenew() {
        return !isPaused();
      },
      ends: (end) => slots.setEnd(slot, end),
      because: (why) => {
        slots.setWhy(slot, why);
        if (why === WHY.blocked) this.#paused.set(lock, maxBlocked);
      },
      renewed: (votes) =>
        this.post(
          votes
            ? { kind: 'unconfirmed', ...name, votes: sentVotes(votes), end: slots.sharedEndOf(slot) }
            : { kind: 'held', ...name },
        ),
      lost: () => {
        slots.setEnd(slot, { monotonic: 0, wall: 0 });
        this.post({ kind: 'lost', ...name });
      },
    };
    lock.mirrorTo(mirror, isUnconfirmed);
    // The validity may have ended on the way.
    lock.isHeld();
  }

  async #extend({ call, ttl, guard, handOver }: Extend): Promise<void> {
    const lock = this.#locks.get(handOver)?.lock;
    this.settings.guard.note(guard);
    const failure = lock ? await whyNotExtended(() => lock.extend(ttl)) : { reason: 'lost' as const };
    this.post({ kind: 'extended', call, ...(failure && { failure }) });
  }

  #end({ isReleased, block, slot, handOver }: Extract<ToThread, { readonly kind: 'end' }>): void {
    const name: SlotName = { block, slot, handOver };
    const lock = this.#locks.get(handOver)?.lock;
    // A lost lock that was dropped may be released before the other thread knows that.
    if (!lock) return;
    this.#paused.delete(lock);
    // The last request may be stored within one ttl, and expires within another.
    if (!lock.endMirror(isReleased)) this.#drop(name);
    else this.#lost.set(handOver, { name, until: performance.now() + 2 * lock.lease.ttl });
  }

  #return({ block, slot, handOver }: SlotName): void {
    const entry = this.#locks.get(handOver);
    if (!entry) return;
    entry.isReturned = true;
    this.#paused.delete(entry.lock);
    entry.lock.returnMirror();
    this.#drop({ block, slot, handOver });
  }

  #drop(name: SlotName): void {
    this.#locks.delete(name.handOver);
    this.#lost.delete(name.handOver);
    this.post({ kind: 'dropped', ...name });
  }

  #dropExpired(): void {
    for (const { name, until } of this.#lost.values()) if (performance.now() >= until) this.#drop(name);
  }

  #look(): void {
    this.#takeOffers();
    this.#dropExpired();
    const blocked = this.#blocked.look();
    for (const [lock, maxBlocked] of this.#paused) {
      if (blocked >= maxBlocked) continue;
      this.#paused.delete(lock);
      lock.renewAgain();
    }
  }
}

async function whyNotExtended(extend: () => Promise<void>): Promise<SentFailure | undefined> {
  try {
    await extend();
    return undefined;
  } catch (error) {
    if (error instanceof LockLostError) return { reason: 'lost' };
    if (error instanceof LockUnavailableError)
      return { reason: 'unconfirmed', votes: sentVotes(error.votes) };
    return { reason: 'other', message: asError(error).message };
  }
}

/** Copies a lease of which nothing but its release may be sent. */
function endedCopy(lease: CopiedLease): Lease {
  return Lease.copied(
    lease,
    0,
    () => true,
    () => true,
  );
}

function before(
  milliseconds: number,
  { shared, wall }: { readonly shared: number; readonly wall: number },
): Instant {
  return { monotonic: fromSharedTime(shared) - milliseconds, wall: wall - milliseconds };
}
