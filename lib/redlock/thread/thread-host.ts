import type { Instant } from '../../core/clock.js';
import type { CopiedLease, Lease } from '../../core/lease.js';
import { tellNodeError } from '../../core/lock-events.js';
import { neutrally } from '../../core/neutral.js';
import type {
  ExtendFailure,
  HandedOver,
  RemotelyRenewed,
  RemoteRenewal,
  RenewalThread,
  Why,
} from '../renewal-ports.js';
import { BEAT_MS, type Beats } from './liveness.js';
import { LockSlots, SLOTS_PER_BLOCK } from './lock-slots.js';
import {
  type Adopt,
  failureOf,
  type FromThread,
  type Slot,
  type SlotName,
  type ToThread,
  votesOf,
} from './messages.js';
import { toSharedTime } from './shared-clock.js';

/** Milliseconds within which a thread that runs has answered. */
const ANSWER_MS = 5_000;

/**
 * A lock that is due for its renewal within so many milliseconds is announced by a message, too: the thread looks for
 * locks each {@link BEAT_MS}, and later on a busy machine.
 */
const SOON_MS = 2 * BEAT_MS;

/** The connection to the thread. */
export interface ThreadPort {
  /** Sends a message at once, so that it arrives even if the caller then blocks its thread. */
  post(message: ToThread): void;
}

/** Receives the reports of the thread. */
export interface HostListener {
  /** Called when the thread can renew: the held locks should be handed over. */
  readonly ready: () => void;
  /** Logs a warning about a weak setup of a server. */
  readonly warning: (text: string) => void;
  /** Called when the thread has not answered for {@link ANSWER_MS}. */
  readonly hangs: () => void;
}

/** A lock that was handed over. */
class Entry implements RemoteRenewal {
  /** `true` after the lock was lost, released or taken back. */
  isEnded = false;
  /** `true` when the thread need hear nothing more of the lock. */
  isOver = false;
  /** The end that the holder knows. */
  #seen: Instant;

  constructor(
    readonly lock: RemotelyRenewed,
    readonly name: SlotName,
    readonly slots: LockSlots,
    private readonly host: Pick<ThreadHost, 'extend' | 'end' | 'takeBack'>,
  ) {
    this.#seen = slots.endOf(name.slot);
  }

  newEnd(): Instant | undefined {
    const end = this.slots.endOf(this.name.slot);
    if (end.monotonic === this.#seen.monotonic && end.wall === this.#seen.wall) return undefined;
    return (this.#seen = end);
  }

  get why(): Why {
    return this.slots.whyOf(this.name.slot);
  }

  extend(ttl: number): Promise<ExtendFailure | undefined> {
    return this.host.extend(this, ttl);
  }

  end(isReleased: boolean): void {
    this.host.end(this, isReleased);
  }

  takeBack(): void {
    this.host.takeBack(this);
  }
}

function copied({ id, keys, owner, ttl, kind, since, slots, permitsSeen }: Lease): CopiedLease {
  return { id, keys, owner, ttl, kind, since, slots, permitsSeen };
}

/** A call of `extend` without an answer. */
interface Call {
  /** The number of the hand-over of its lock. */
  readonly lock: number;
  readonly answer: (failure: ExtendFailure | undefined) => void;
}

/**
 * Hands locks over to a thread that renews them: the part in the thread that holds the locks. Locks that are acquired
 * before the thread is ready, and after it has died, renew themselves.
 */
export class ThreadHost implements Pick<RenewalThread, 'takeOver'> {
  readonly #blocks: LockSlots[] = [];
  /** The slots that no lock uses. */
  readonly #free: Slot[] = [];
  /** The locks by the numbers of their hand-overs. */
  readonly #locks = new Map<number, Entry>();
  /** The locks that were taken back, until the thread has answered: it may hang. */
  readonly #takenBack = new Set<number>();
  readonly #calls = new Map<number, Call>();
  #lastCall = 0;
  #handOvers = 0;
  #isReady = false;
  #timer: NodeJS.Timeout | undefined;
  #answer: NodeJS.Timeout | undefined;
  #closed: (() => void) | undefined;

  /** @param guardNow - milliseconds of the restart guard at present */
  constructor(
    private readonly port: ThreadPort,
    private readonly beats: Beats,
    private readonly guardNow: () => number,
    private readonly listener: HostListener,
  ) {}

  /** Tells the thread to connect its stores: the stores of this thread have prepared the servers. */
  connect(): void {
    this.port.post({ kind: 'connect' });
  }

  takeOver(lock: RemotelyRenewed, handedOver: HandedOver): RemoteRenewal | undefined {
    if (!this.#isReady || this.#takenBack.size > 0) return undefined;
    const { block, slot } = this.#free.pop() ?? this.#addBlock();
    const name: SlotName = { block, slot, handOver: ++this.#handOvers };
    const slots = this.#blocks[block]!;
    const { lease, replaced, fencingToken, ttl, end, isUnconfirmed, maxHold, maxBlocked } = handedOver;
    lease.lent ??= 'certain';
    slots.begin(slot, end);
    const entry = new Entry(lock, name, slots, this);
    this.#locks.set(name.handOver, entry);
    this.beats.add();
    // Without spreads: with them this object took 10 us of the processor, three times as long as all else in a hand-over.
    this.#offer(slots, {
      kind: 'adopt',
      block,
      slot,
      handOver: name.handOver,
      lease: copied(lease),
      replaced: replaced?.map(copied),
      keptUntil: lease.keepFor > 0 ? toSharedTime(performance.now() + lease.keepFor) : undefined,
      fencingToken,
      ttl,
      ends: { shared: toSharedTime(end.monotonic), wall: end.wall },
      isUnconfirmed,
      maxHold: maxHold && {
        duration: maxHold.duration,
        since: { shared: toSharedTime(maxHold.since.monotonic), wall: maxHold.since.wall },
      },
      maxBlocked,
      guard: this.guardNow(),
    });
    if (end.monotonic - performance.now() - (2 / 3) * ttl < SOON_MS) this.port.post({ kind: 'look' });
    return entry;
  }

  /** Extends the lock in the turn of the thread: {@link RemoteRenewal.extend}. */
  extend(entry: Entry, ttl: number): Promise<ExtendFailure | undefined> {
    const call = ++this.#lastCall;
    return new Promise((resolve) => {
      this.#calls.set(call, { lock: entry.name.handOver, answer: resolve });
      this.port.post({ kind: 'extend', call, ttl, guard: this.guardNow(), ...entry.name });
    });
  }

  /** Ends the renewal of a lock that is released or lost: {@link RemoteRenewal.end}. */
  end(entry: Entry, isReleased: boolean): void {
    if (entry.isOver || (entry.isEnded && !isReleased)) return;
    const { slot, handOver } = entry.name;
    entry.isEnded = true;
    entry.isOver = isReleased;
    entry.slots.setEnded(slot);
    if (entry.slots.withdraw(slot)) this.#drop(entry.name);
    else if (this.#isReady) this.port.post({ kind: 'end', isReleased, ...entry.name });
    this.#answerCalls({ reason: 'lost' }, handOver);
  }

  /** Lets the holder renew the lock itself: {@link RemoteRenewal.takeBack}. */
  takeBack(entry: Entry): void {
    if (entry.isEnded) return;
    const { slot, handOver } = entry.name;
    entry.isEnded = true;
    entry.isOver = true;
    entry.slots.setReturned(slot);
    this.#takenBack.add(handOver);
    this.port.post({ kind: 'return', ...entry.name });
    if (!this.#answer) neutrally(() => this.#awaitAnswer());
    this.#answerCalls({ reason: 'returned' }, handOver);
  }

  #offer(slots: LockSlots, adopt: Adopt): void {
    if (slots.offer(adopt.slot, JSON.stringify(adopt))) return;
    slots.skipOffer(adopt.slot);
    this.port.post(adopt);
  }

  receive(message: FromThread): void {
    switch (message.kind) {
      case 'ready':
        return this.#begin();
      case 'dropped':
        return this.#drop(message);
      case 'lost':
        return void this.#lockOf(message)?.isHeld();
      case 'held':
        return this.#lockOf(message)?.renewedElsewhere();
      case 'unconfirmed':
        return this.#unconfirmed(message);
      case 'extended':
        this.#calls.get(message.call)?.answer(message.failure && failureOf(message.failure));
        return void this.#calls.delete(message.call);
      case 'node-error':
        return tellNodeError(message.node, new Error(message.message));
      case 'warning':
        return this.listener.warning(message.text);
      case 'closed':
        this.#closed?.();
    }
  }

  /** Takes all locks back: the thread has ended. */
  died(): void {
    this.#isReady = false;
    clearInterval(this.#timer);
    this.#answered();
    const held = [...this.#locks.values()];
    this.#locks.clear();
    for (const { lock, isEnded } of held) if (!isEnded) lock.renewHere();
    this.#answerCalls({ reason: 'returned' });
  }

  /** Asks the thread to close its stores. Resolves when it has. The locks are lost or released before. */
  close(): Promise<void> {
    this.died();
    return new Promise((resolve) => {
      this.#closed = resolve;
      this.port.post({ kind: 'close' });
    });
  }

  /** The message may be old: the thread may have renewed the lock since, while this thread was blocked. */
  #unconfirmed(message: Extract<FromThread, { readonly kind: 'unconfirmed' }>): void {
    const { block, slot, votes, end } = message;
    if (this.#blocks[block]!.sharedEndOf(slot) <= end)
      this.#lockOf(message)?.renewedElsewhere(votesOf(votes));
  }

  #begin(): void {
    if (this.#closed) return;
    this.#isReady = true;
    // The timer serves all locks (S30).
    neutrally(() => {
      this.#timer = setInterval(() => this.beats.add(), BEAT_MS).unref();
    });
    this.listener.ready();
  }

  #drop({ block, slot, handOver }: SlotName): void {
    const entry = this.#locks.get(handOver);
    if (!entry) return;
    entry.isOver = true;
    this.#locks.delete(handOver);
    this.#takenBack.delete(handOver);
    if (this.#takenBack.size === 0) this.#answered();
    this.#free.push({ block, slot });
  }

  #awaitAnswer(): void {
    // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets Node
    // read it first.
    const timer = setTimeout(setImmediate, ANSWER_MS, () => {
      if (this.#answer === timer) this.listener.hangs();
    }).unref();
    this.#answer = timer;
  }

  #answered(): void {
    clearTimeout(this.#answer);
    this.#answer = undefined;
  }

  /** Answers the calls of `extend` for one lock, or all, which the thread may never answer. */
  #answerCalls(failure: ExtendFailure, lock?: number): void {
    for (const [number, call] of this.#calls) {
      if (lock !== undefined && call.lock !== lock) continue;
      this.#calls.delete(number);
      call.answer(failure);
    }
  }

  #lockOf(name: SlotName): RemotelyRenewed | undefined {
    const entry = this.#locks.get(name.handOver);
    return entry?.isEnded === false ? entry.lock : undefined;
  }

  #addBlock(): Slot {
    const block = this.#blocks.length;
    const slots = new LockSlots();
    this.#blocks.push(slots);
    this.port.post({ kind: 'block', block, memory: slots.memory });
    for (let slot = SLOTS_PER_BLOCK - 1; slot > 0; slot--) this.#free.push({ block, slot });
    return { block, slot: 0 };
  }
}
