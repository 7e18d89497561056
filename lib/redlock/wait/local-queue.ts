import type { AttemptPlan, AttemptResult } from '../acquire.js';
import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, LockUnavailableError } from '../../core/errors.js';
import { HeldLock } from '../held-lock.js';
import type { Listening, LockStore } from '../../core/ports.js';
import { WakeableSleep } from './wakeable-sleep.js';
import type { WaiterId } from '../../core/waiter-id.js';

/** For how long a node that gave no vote is not asked to keep the order, in milliseconds. */
const FAILED_FOR_MS = 1_000;

/** That somebody held the lock, as nodes answered at some moment. */
interface Holding {
  readonly owner: string;
  /** Milliseconds from then on. */
  readonly retryAfter: number;
  readonly at: Instant;
}

/** One call that waits for a lock. */
export class Waiter {
  readonly since = now();
  readonly pause = new WakeableSleep();
}

/**
 * The calls of this process that wait for the same keys, in the order in which they came. Only the first of them asks
 * the nodes; it stands for all of them in the queue at the gate, the first node in order that answers.
 */
export class LocalQueue {
  // Mostly there is one waiter, who listens to nobody and waits nowhere: arrays and no Sets, which cost more to make.
  readonly #waiters: Waiter[] = [];
  #listening: Map<LockStore, Listening> | undefined;
  /** Nodes in whose queues the place may stand. */
  #placedAt: Set<LockStore> | undefined;
  /** The node in whose queue it stands, as far as is known. */
  #queuedAt: LockStore | undefined;
  /** It is our turn, as far as we know. */
  #turn = false;
  /**
   * When the first waiter is to ask, by the monotonic clock and the last message that said so. It outlives the waiter that
   * was first when that came, and requests sent before: the node takes it that somebody asks then.
   */
  #askAt = Infinity;
  /** Why the lock could not be had when the nodes were last asked. That it is held is not an error yet: those cost. */
  #refusal: LockUnavailableError | Holding | undefined;
  /** The place stands in line already, put there when the waiter before was granted. */
  #inherited = false;
  /** The ids of the locks that these calls had last, and before: the message of the release of that one is no news. */
  #last: string | undefined;
  #before: string | undefined;
  /** A node that gave no vote when it was the gate, and since when. */
  #failed: { readonly gate: LockStore; readonly at: Instant } | undefined;

  constructor(
    private readonly nodes: readonly LockStore[],
    private readonly place: WaiterId,
  ) {}

  get isEmpty(): boolean {
    return this.#waiters.length === 0;
  }

  /** The waiter that asks the nodes. */
  get first(): Waiter | undefined {
    return this.#waiters[0];
  }

  join(): Waiter {
    const waiter = new Waiter();
    this.#waiters.push(waiter);
    return waiter;
  }

  /** The waiter has got its lock, or given up. The next one takes over. */
  part(waiter: Waiter): void {
    const index = this.#waiters.indexOf(waiter);
    this.#waiters.splice(index, 1);
    if (index === 0) this.first?.pause.cutTo(0);
  }

  /** Stops listening, and gives the place up. */
  end(): readonly Promise<unknown>[] {
    this.#listening?.forEach((listening) => listening.stop());
    this.#listening = undefined;
    return [...(this.#placedAt ?? [])].map((node) => node.leave(this.place));
  }

  /**
   * When the waiter before was granted, it put the place in line for the next one, who then need not ask.
   *
   * @returns the milliseconds after which that grant can have lapsed; `undefined` if there is none
   */
  takeOver(): number | undefined {
    const inherited = this.#inherited;
    this.#inherited = false;
    this.first?.pause.cutTo(this.#askAt - performance.now());
    return inherited ? this.lastHeld()?.retryAfter : undefined;
  }

  /**
   * How the first waiter asks next.
   *
   * @param again - it was refused before
   * @param everybody - ask all nodes, also where one would do: the last attempt shall know how many hold it
   */
  approach(waiter: Waiter, left: number, again: boolean, everybody: boolean): AttemptPlan {
    const gate = this.#gate();
    const contended = again || this.#waiters.length > 1 || gate.contended(this.place.keys);
    const ready = (contended || gate.subscribed) && this.#listenAt(gate).ready;
    const turn = this.#turn;
    this.#turn = false;
    waiter.pause.forget();
    if (this.#askAt <= performance.now()) this.#askAt = Infinity;
    const place = ready ? this.place : undefined;
    if (place) (this.#placedAt ??= new Set()).add(gate);
    const next = place && this.#waiters[1];
    return {
      left,
      gate,
      order: { place, waited: elapsedSince(waiter.since), next: next && elapsedSince(next.since) },
      gateFirst: contended && !turn && !everybody && this.nodes.length > 1,
    };
  }

  /** What came of asking like that. */
  note({ gate, order: { place, next } }: AttemptPlan, { outcome, atGate, nextIsFirst }: AttemptResult): void {
    const inLine = place && (atGate === 'refused' || (atGate === 'granted' && next !== undefined));
    this.#queuedAt = inLine ? gate : undefined;
    if (atGate === 'failed') this.#failed = { gate, at: now() };
    if (atGate === 'granted' && !inLine) this.#placedAt?.delete(gate);
    const held = outcome instanceof HeldLock;
    if (held) {
      this.#before = this.#last;
      this.#last = outcome.id;
      // One round trip; to wait for the message takes two.
      if (nextIsFirst) {
        outcome.follower = () => {
          this.#turn = true;
          this.first?.pause.cutTo(0);
        };
      }
    } else this.first?.pause.cutTo(this.#askAt - performance.now());
    this.#inherited = held && this.isQueued();
    // That a tick has run is no answer to those who wait without one.
    if (outcome instanceof LockHeldError && outcome.ranTick !== undefined) return;
    if (outcome instanceof LockUnavailableError) {
      this.#refusal = outcome;
    } else {
      const [owner, retryAfter] = held
        ? [this.place.owner, outcome.ttl]
        : [outcome.owner, outcome.retryAfter];
      this.#refusal = { owner, retryAfter, at: now() };
    }
  }

  /** Whether the place stands in line, so that a message will come. */
  isQueued(): boolean {
    return this.#queuedAt !== undefined && this.#listening?.get(this.#queuedAt)?.ready === true;
  }

  /** Whether asking again at once would put the place in line. */
  canQueue(): boolean {
    return !this.isQueued() && this.#listenAt(this.#gate()).ready;
  }

  /** Why a waiter that gives up now does not get the lock. */
  refusal(): LockHeldError | LockUnavailableError {
    const refusal = this.#refusal;
    if (!refusal)
      return new LockUnavailableError(this.place.keys, 'no node has answered those who came earlier');
    return refusal instanceof LockUnavailableError ? refusal : this.#heldError(refusal);
  }

  /** Who held it when the nodes were last asked, if that is how they answered. */
  lastHeld(): LockHeldError | undefined {
    const refusal = this.#refusal;
    return refusal && !(refusal instanceof LockUnavailableError) ? this.#heldError(refusal) : undefined;
  }

  #heldError({ owner, retryAfter, at }: Holding): LockHeldError {
    return new LockHeldError(this.place.keys, owner, Math.max(0, retryAfter - elapsedSince(at)));
  }

  #gate(): LockStore {
    const failed = this.#failed;
    if (!failed || elapsedSince(failed.at) > FAILED_FOR_MS || this.nodes.length === 1)
      return gateOf(this.nodes);
    return gateOf(this.nodes.filter((node) => node !== failed.gate));
  }

  #listenAt(gate: LockStore): Listening {
    this.#listening ??= new Map();
    let listening = this.#listening.get(gate);
    if (!listening) {
      listening = gate.listen(this.place, (after, turn, released) => {
        if (turn && released && released === this.#before) return;
        this.#turn ||= turn;
        if (after > 0) this.#askAt = performance.now() + after;
        this.first?.pause.cutTo(after);
      });
      this.#listening.set(gate, listening);
    }
    return listening;
  }
}

/** The node at which those who wait queue: the first that answers, in the order in which all processes list them. */
export function gateOf(nodes: readonly LockStore[]): LockStore {
  const gate = nodes.find(({ available }) => available) ?? nodes[0];
  if (!gate) throw new Error('there are no nodes');
  return gate;
}
