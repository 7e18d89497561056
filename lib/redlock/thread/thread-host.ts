import { tellNodeError } from '../../core/lock-events.js';
import { neutrally } from '../../core/neutral.js';
import { BEAT_MS, type Beats } from './liveness.js';
import { LockSlots, SLOTS_PER_BLOCK } from './lock-slots.js';
import {
  type Adopt,
  type ExtendFailure,
  type FromThread,
  type SlotName,
  type ToThread,
  votesOf,
} from './messages.js';
import type { HandedOver, RemotelyRenewed, RemoteRenewal, RenewalThread } from './renewal-ports.js';
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
interface Entry {
  readonly lock: RemotelyRenewed;
  /** `true` after the lock was lost, released or taken back. */
  isEnded: boolean;
  /** `true` when the thread need hear nothing more of the lock. */
  isOver: boolean;
  /** `true` after a message that names the slot: the thread must not read it when another lock has the slot. */
  isNamed: boolean;
}

/** A call of `extend` without an answer. */
interface Call {
  readonly lock: string;
  readonly answer: (failure: ExtendFailure | undefined) => void;
}

/**
 * Hands locks over to a thread that renews them: the part in the thread that holds the locks. Locks that are acquired
 * before the thread is ready, and after it has died, renew themselves.
 */
export class ThreadHost implements Pick<RenewalThread, 'takeOver'> {
  readonly #blocks: LockSlots[] = [];
  /** The slots that no lock uses. */
  readonly #free: SlotName[] = [];
  readonly #locks = new Map<string, Entry>();
  /** The slots of locks that were taken back, until the thread has answered: it may hang. */
  readonly #takenBack = new Set<string>();
  readonly #calls = new Map<number, Call>();
  #lastCall = 0;
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
    const name = this.#free.pop() ?? this.#addBlock();
    const { block, slot } = name;
    const slots = this.#blocks[block]!;
    const entry: Entry = { lock, isEnded: false, isOver: false, isNamed: false };
    const { lease, fencingToken, ttl, end, isUnconfirmed, maxHold, maxBlocked } = handedOver;
    const { id, keys, owner, kind, since, permitsSeen } = lease;
    lease.lent ??= 'certain';
    slots.begin(slot, end);
    this.#locks.set(nameOf(name), entry);
    this.beats.add();
    this.#offer(slots, {
      ...{ kind: 'adopt', block, slot, fencingToken, ttl, maxBlocked, guard: this.guardNow() },
      lease: { id, keys, owner, ttl: lease.ttl, kind, since, slots: lease.slots, permitsSeen },
      ...(lease.keepFor > 0 && { keptUntil: toSharedTime(performance.now() + lease.keepFor) }),
      isUnconfirmed,
      ends: { shared: toSharedTime(end.monotonic), wall: end.wall },
      maxHold: maxHold && {
        duration: maxHold.duration,
        since: { shared: toSharedTime(maxHold.since.monotonic), wall: maxHold.since.wall },
      },
    });
    if (end.monotonic - performance.now() - (2 / 3) * ttl < SOON_MS) this.port.post({ kind: 'look' });
    let seen = slots.endOf(slot);
    return {
      newEnd: () => {
        const now = slots.endOf(slot);
        if (now.monotonic === seen.monotonic && now.wall === seen.wall) return undefined;
        return (seen = now);
      },
      get why() {
        return slots.whyOf(slot);
      },
      extend: (more) => {
        entry.isNamed = true;
        return this.#extend(name, more);
      },
      end: (isReleased) => {
        if (entry.isOver || (entry.isEnded && !isReleased)) return;
        entry.isEnded = true;
        entry.isOver = isReleased;
        slots.setEnded(slot);
        if (!entry.isNamed && slots.withdraw(slot)) return this.#drop(name);
        if (this.#isReady) this.port.post({ kind: 'end', isReleased, block, slot });
        this.#answerCalls({ reason: 'lost' }, nameOf(name));
      },
      takeBack: () => {
        if (entry.isEnded) return;
        entry.isEnded = true;
        entry.isOver = true;
        slots.setReturned(slot);
        this.#takenBack.add(nameOf(name));
        this.port.post({ kind: 'return', block, slot });
        this.#answer ??= neutrally(() => setTimeout(() => this.listener.hangs(), ANSWER_MS).unref());
        this.#answerCalls({ reason: 'returned' }, nameOf(name));
      },
    };
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
        return this.#drop({ block: message.block, slot: message.slot });
      case 'lost':
        return void this.#lockOf(message)?.isHeld();
      case 'held':
        return this.#lockOf(message)?.renewedElsewhere();
      case 'unconfirmed':
        return this.#unconfirmed(message);
      case 'extended':
        this.#calls.get(message.call)?.answer(message.failure);
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

  #drop(name: SlotName): void {
    const entry = this.#locks.get(nameOf(name));
    if (entry) entry.isOver = true;
    this.#locks.delete(nameOf(name));
    this.#takenBack.delete(nameOf(name));
    if (this.#takenBack.size === 0) this.#answered();
    this.#free.push(name);
  }

  #answered(): void {
    clearTimeout(this.#answer);
    this.#answer = undefined;
  }

  /** Answers the calls of `extend` for one lock, or all, which the thread may never answer. */
  #answerCalls(failure: ExtendFailure, lock?: string): void {
    for (const [number, call] of this.#calls) {
      if (lock !== undefined && call.lock !== lock) continue;
      this.#calls.delete(number);
      call.answer(failure);
    }
  }

  #lockOf(name: SlotName): RemotelyRenewed | undefined {
    const entry = this.#locks.get(nameOf(name));
    return entry?.isEnded === false ? entry.lock : undefined;
  }

  #extend({ block, slot }: SlotName, ttl: number): Promise<ExtendFailure | undefined> {
    const call = ++this.#lastCall;
    return new Promise((resolve) => {
      this.#calls.set(call, { lock: nameOf({ block, slot }), answer: resolve });
      this.port.post({ kind: 'extend', call, ttl, guard: this.guardNow(), block, slot });
    });
  }

  #addBlock(): SlotName {
    const block = this.#blocks.length;
    const slots = new LockSlots();
    this.#blocks.push(slots);
    this.port.post({ kind: 'block', block, memory: slots.memory });
    for (let slot = SLOTS_PER_BLOCK - 1; slot > 0; slot--) this.#free.push({ block, slot });
    return { block, slot: 0 };
  }
}

function nameOf({ block, slot }: SlotName): string {
  return `${block}:${slot}`;
}
