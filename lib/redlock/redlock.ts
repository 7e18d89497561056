import { randomBytes } from 'node:crypto';
import { NoTimeError } from './fan-out.js';
import { type AttemptResult, Attempts, type AcquireRequest } from './acquire.js';
import { elapsedSince } from '../core/clock.js';
import { LockHeldError, type LockUnavailableError } from '../core/errors.js';
import { HeldLock, type RedlockSettings } from './held-lock.js';
import type { ResolvedRetry } from '../core/lock-options.js';
import type { WaiterId } from '../core/waiter-id.js';
import { quorumOf } from './quorum.js';
import type { RestartGuard } from './restart-guard.js';
import { gateOf, type Waiter, LocalQueue } from './wait/local-queue.js';

/** What {@link Redlock.acquire} goes by. */
export interface Acquisition extends Omit<AcquireRequest, 'keys'> {
  readonly retry: ResolvedRetry;
}

/** The most that is kept of a `retry.timeout` for its last attempt to be answered in, in milliseconds. */
const LAST_ATTEMPT_MS = 50;

/**
 * The longest that a waiter sleeps which stands in line and will be told when it can try, in milliseconds. Messages can
 * get lost; asking is what counts.
 */
const LONGEST_SLEEP_MS = 5_000;

/** How soon to try again when votes were split, in milliseconds. */
const SPLIT_VOTE_MS = 10;

/**
 * The Redlock algorithm over any number of independent nodes; on one node it is `SET NX PX` with an owner id. Those who
 * wait stand in line, and are told when it is their turn.
 *
 * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
 */
export class Redlock {
  readonly #attempts: Attempts;
  readonly #lines = new Map<string, LocalQueue>();
  readonly #process = randomBytes(8).toString('hex');
  #places = 0;

  constructor(private readonly settings: RedlockSettings) {
    this.#attempts = new Attempts(settings);
  }

  /**
   * Tries until the lock is acquired or the first limit of `retry` is met.
   *
   * @throws LockHeldError or LockUnavailableError, as the last attempt ended, or a signal's reason
   */
  acquire(keys: readonly string[], acquisition: Acquisition): Promise<HeldLock> {
    const { retry, ttl, renew, minHold, maxHold, tick, signals } = acquisition;
    this.settings.guard.note(ttl);
    // Field by field, here and below: spreading an object takes longer than all the rest of an uncontended call.
    const wish: AcquireRequest = { keys, ttl, renew, minHold, maxHold, tick, signals };
    return retry.attempts === 1 ? this.#once(wish, retry) : this.#wait(wish, retry);
  }

  /** How long its nodes must not vote after a restart. */
  get guard(): RestartGuard {
    return this.settings.guard;
  }

  /** The locks that are held at present. */
  get held(): Iterable<HeldLock> {
    return this.#attempts.held;
  }

  /** Waits for the releases that are under way, then ends what was opened for the nodes. */
  async close(): Promise<void> {
    await this.#attempts.settled();
    await Promise.all(this.settings.nodes.map((node) => node.close()));
  }

  #once(wish: AcquireRequest, { timeout }: ResolvedRetry): Promise<HeldLock> {
    const gate = gateOf(this.settings.nodes);
    const approach = { left: timeout, gate, order: { waited: 0 }, gateFirst: false };
    return this.#attempts.make(wish, approach).then(lockOf);
  }

  async #wait(wish: AcquireRequest, retry: ResolvedRetry): Promise<HeldLock> {
    const { keys, signals } = wish;
    for (const signal of signals) signal.throwIfAborted();
    // No key begins like that.
    const name = keys.length === 1 ? (keys[0] ?? '') : `}${JSON.stringify(keys)}`;
    let line = this.#lines.get(name);
    if (!line) {
      line = new LocalQueue(this.settings.nodes, this.#newPlace(keys));
      this.#lines.set(name, line);
    }
    const waiter = line.join();
    try {
      const tried = line.first === waiter ? 0 : await this.#untilFirst(line, waiter, retry, signals);
      return await this.#insist(line, waiter, wish, retry, tried);
    } finally {
      line.part(waiter);
      if (line.isEmpty) {
        this.#lines.delete(name);
        for (const leaving of line.end()) this.#attempts.track(leaving);
      }
    }
  }

  /**
   * Waits behind other calls of this process.
   *
   * @returns how many attempts that wait counts for
   * @throws what the calls in front met when a limit of `retry` is met first
   */
  async #untilFirst(
    line: LocalQueue,
    waiter: Waiter,
    { timeout, attempts, delay, jitter }: ResolvedRetry,
    signals: readonly AbortSignal[],
  ): Promise<number> {
    // Each pause between two attempts that it would make if it were alone counts for one, without asking anybody.
    const perAttempt = delay + jitter / 2;
    const patience = (attempts - 1) * perAttempt;
    await waiter.pause.for(Math.min(timeout, patience), signals);
    const waited = elapsedSince(waiter.since);
    if (line.first === waiter) return Math.min(attempts - 1, Math.floor(waited / perAttempt));
    throw line.refusal().afterTrying(patience < timeout ? { attempts } : { timeout });
  }

  /** Asks, as the first in line, until the lock is acquired or a limit is met. */
  async #insist(
    line: LocalQueue,
    waiter: Waiter,
    wish: AcquireRequest,
    { timeout, attempts, delay, jitter }: ResolvedRetry,
    tried: number,
  ): Promise<HeldLock> {
    const limit = this.#attempts.nodeLimit(wish.ttl);
    const lastAttempt = Math.min(limit, LAST_ATTEMPT_MS, timeout / 10);
    const timeLeft = (): number => timeout - elapsedSince(waiter.since);
    const random = (): number => Math.random() * jitter;
    const lapses = line.takeOver();
    if (lapses !== undefined) {
      const sleep = Math.min(lapses + random(), LONGEST_SLEEP_MS);
      await waiter.pause.for(Math.min(sleep, timeLeft() - lastAttempt), wish.signals);
    }
    let asked = lapses !== undefined;
    let everybody = false;
    let lastHeld = line.lastHeld();
    for (let attempt = tried + 1; ;) {
      for (const signal of wish.signals) signal.throwIfAborted();
      const left = timeLeft();
      // The last attempt asks all nodes, also where one would do: it shall know who holds it and how many answer.
      const approach = line.approach(waiter, left, asked, everybody || left <= lastAttempt * 1.5);
      const attempted = await this.#attempts.make(wish, approach);
      line.note(approach, attempted);
      const { outcome, atGate, split, cutShort } = attempted;
      if (outcome instanceof HeldLock) return outcome;
      if (outcome instanceof LockHeldError && outcome.ranTick !== undefined) throw outcome;
      asked = true;

      const isHeld = outcome instanceof LockHeldError;
      const hadNoTime = cutShort && !isHeld && !isRuledOut(outcome);
      const result = hadNoTime ? (lastHeld ?? outcome) : outcome;
      lastHeld = result instanceof LockHeldError ? result : undefined;
      const budget = timeLeft() - lastAttempt;
      if (attempt >= attempts) throw result.afterTrying({ attempts });
      if (budget <= 0) throw result.afterTrying({ timeout });
      // The gate is not fit to vote; or it refused without putting us in line, and now it can.
      everybody = !isHeld && approach.gateFirst;
      if (everybody || (isHeld && atGate !== 'granted' && line.canQueue())) continue;

      attempt++;
      const free = isHeld ? outcome.retryAfter : Infinity;
      const told = attempts === Infinity && line.isQueued();
      const longest = told ? LONGEST_SLEEP_MS : split && isHeld ? SPLIT_VOTE_MS : delay;
      const sleep = Math.min(longest, free) + random();
      await waiter.pause.for(Math.min(sleep, budget), wish.signals);
    }
  }

  #newPlace(keys: readonly string[]): WaiterId {
    return { keys, process: this.#process, number: ++this.#places, owner: this.settings.owner };
  }
}

function lockOf({ outcome }: AttemptResult): HeldLock {
  if (outcome instanceof HeldLock) return outcome;
  throw outcome;
}

/** Whether so many nodes answered with errors that there could be no quorum, however long one waits for the others. */
function isRuledOut({ votes }: LockUnavailableError): boolean {
  const errors = votes.filter(({ error }) => error && !(error instanceof NoTimeError)).length;
  return votes.length - errors < quorumOf(votes.length);
}
