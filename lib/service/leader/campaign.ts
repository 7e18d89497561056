import type { Logger } from '@nestjs/common';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LeaderEvent, TermEnd } from '../../telemetry/leader-event.js';
import type { ResolvedLockOptions } from '../../core/lock-options.js';
import { LockHeldError } from '../../core/errors.js';
import { printable } from '../../core/printable.js';
import { currentLockOf } from '../lock-context.js';
import type { LockRuntime } from '../lock-runtime.js';
import type { LockScope, RunnableLock } from '../lock-scope.js';
import { leaderKey, type LeaderTerm } from './leader-term.js';

/** What is run by the leader. */
export interface LeaderTask {
  /** The name that `@Leader` gives. */
  readonly name: string;
  /** The class and the method. */
  readonly method: string;
  /** Milliseconds; that of the module by default. */
  readonly ttl: number | undefined;
  /** Leads, until it settles. */
  readonly lead: (term: LeaderTerm) => unknown;
}

/** Milliseconds before the next try, doubled with each that fails at once. */
const FIRST_BACK_OFF_MS = 1_000;
const LONGEST_BACK_OFF_MS = 30_000;

/** A term that this process has at present. */
class Term implements LeaderTerm {
  readonly keys: readonly string[];
  readonly fencingToken: number;
  readonly signal: AbortSignal;
  readonly #controller = new AbortController();
  #end: TermEnd | undefined;

  /** What runs under its lock beside the method that leads. */
  readonly tasks = new Set<Promise<unknown>>();

  constructor(
    readonly lock: RunnableLock,
    readonly scope: LockScope,
  ) {
    this.keys = lock.keys;
    this.fencingToken = lock.fencingToken;
    this.signal = this.#controller.signal;
    const lost = (): void => this.end('lost', lock.signal.reason as Error);
    lock.signal.addEventListener('abort', lost, { once: true });
    if (lock.signal.aborted) lost();
  }

  /** Ends the term, if nothing has ended it before; the lock is released when the method has settled. */
  end(how: TermEnd, reason: Error): void {
    if (this.#end !== undefined) return;
    this.#end = how;
    this.#controller.abort(reason);
  }

  /** How the term ended; `undefined` while it lasts. */
  get ended(): TermEnd | undefined {
    return this.#end;
  }
}

/**
 * The attempts of one process to lead under one name, and its terms. One method runs at a time: after a loss the next
 * attempt begins when the method of the lost term has settled.
 */
export class Campaign {
  #term: Term | undefined;
  /** Ends the waits of the attempts under way. */
  #attempts: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();
  readonly #options: ResolvedLockOptions;

  /** @param tell - never throws */
  constructor(
    private readonly task: LeaderTask,
    private readonly runtime: LockRuntime,
    private readonly logger: Logger,
    private readonly tell: (event: Omit<LeaderEvent, 'instance'>) => void,
  ) {
    const { ttl } = task;
    this.#options = {
      ...runtime.resolve({ ...(ttl !== undefined && { ttl }), renew: true, minHold: 0, onLost: 'ignore' }),
      retry: { timeout: Infinity, attempts: Infinity, delay: 200, jitter: 100 },
      maxHold: undefined,
      reentrant: false,
    };
  }

  get name(): string {
    return this.task.name;
  }

  /** Decided by the clock, like `LockHandle.isHeld`. */
  isLeader(): boolean {
    return this.#term !== undefined && this.#term.ended === undefined && this.#term.lock.isHeld();
  }

  /**
   * Runs `task` under the lock of the present term, which is released when `task` has settled, too.
   *
   * @returns `undefined`, and `task` does not run, while this process does not lead
   */
  ifLeader(task: () => unknown): unknown {
    const term = this.#term;
    if (!term || !this.isLeader()) return undefined;
    const result = term.scope.inside(task);
    const settled = Promise.resolve(result)
      .catch(() => undefined)
      .then(() => void term.tasks.delete(settled));
    term.tasks.add(settled);
    return result;
  }

  /** Campaigns from now on; does nothing while it does so already. */
  start(): void {
    if (this.runtime.isClosed || this.#attempts) return;
    const attempts = new AbortController();
    this.#attempts = attempts;
    this.#running = this.#running.then(async () => {
      await this.#campaign(attempts.signal);
      if (this.#attempts === attempts) this.#attempts = undefined;
    });
  }

  /**
   * Ends the term and campaigns no more. Resolves when the method has settled and the lock is released; at once when that
   * method is what calls, as it would wait for itself.
   */
  async stop(how: 'resigned' | 'shutdown'): Promise<void> {
    const reason = new Error(REASONS[how]);
    this.#attempts?.abort(reason);
    this.#attempts = undefined;
    this.#term?.end(how, reason);
    const isOwnMethod = currentLockOf(this.runtime, leaderKey(this.name))?.id === this.#term?.lock.id;
    if (!this.#term || !isOwnMethod) await this.#running;
  }

  /** Never rejects. */
  async #campaign(signal: AbortSignal): Promise<void> {
    const { name, method } = this.task;
    this.tell({ leader: name, method, isLeader: false });
    let backOff = FIRST_BACK_OFF_MS;
    while (!signal.aborted) {
      const began = performance.now();
      try {
        const lock = await this.runtime.acquire(
          [leaderKey(name)],
          this.#options,
          { label: leaderKey(name), method },
          signal,
        );
        const ended = await this.#lead(lock, signal);
        if (ended === 'returned') return;
        if (ended !== 'threw') continue;
      } catch (error) {
        if (signal.aborted || this.runtime.isClosed) return;
        // Another leader is no failure. Only a testing module that waits for nothing rejects with this.
        if (!(error instanceof LockHeldError)) {
          const { message } = error as Error;
          this.logger.error(
            `${method} cannot campaign for '${printable(name)}', next try in ${backOff} ms: ${message}`,
          );
        }
      }
      if (performance.now() - began > LONGEST_BACK_OFF_MS) backOff = FIRST_BACK_OFF_MS;
      await sleep(backOff, undefined, { signal, ref: false }).catch(() => undefined);
      backOff = Math.min(2 * backOff, LONGEST_BACK_OFF_MS);
    }
  }

  /** Leads for one term. Never rejects. */
  async #lead(lock: RunnableLock, signal: AbortSignal): Promise<TermEnd> {
    const { name: leader, method, lead } = this.task;
    const { fencingToken } = lock;
    // In the list of what runs, so that shutdown waits for it, within its limit.
    const scope = this.runtime.begin(lock, this.#options);
    const term = new Term(lock, scope);
    let error: unknown;
    if (signal.aborted) term.end(this.runtime.isClosed ? 'shutdown' : 'resigned', signal.reason as Error);
    else {
      this.#term = term;
      this.logger.log(`${method} leads '${printable(leader)}', term ${fencingToken}`);
      this.tell({ leader, method, isLeader: true, fencingToken });
      try {
        await scope.inside(() => lead(term));
        term.end('returned', new Error(`${method} has returned, which ends its term`));
      } catch (cause) {
        error = cause;
        // What it throws because its term has ended is expected.
        if (term.ended !== undefined && cause !== term.signal.reason && !isAbort(cause))
          this.logger.warn(`${method} threw after the end of its term ${fencingToken}: ${String(cause)}`);
        term.end('threw', new Error(`${method} has thrown, which ends its term`, { cause }));
      }
      this.#term = undefined;
    }
    const reason = term.ended ?? 'returned';
    await Promise.all(term.tasks);
    this.#report(reason, error, term);
    // After the event: the next leader's may come in the same millisecond.
    await scope.end();
    return reason;
  }

  #report(reason: TermEnd, thrown: unknown, { fencingToken, signal }: Term): void {
    const { name: leader, method } = this.task;
    const error: unknown = reason === 'lost' ? signal.reason : thrown;
    const ended = `${method} leads '${printable(leader)}' no more, term ${fencingToken}`;
    if (reason === 'threw')
      this.logger.error(
        `${ended}: it threw. Campaigning again.`,
        (error as Error | undefined)?.stack ?? String(error),
      );
    else if (reason === 'lost') this.logger.warn(`${ended}: ${(error as Error).message}`);
    else this.logger.log(`${ended}: ${REASONS[reason]}`);
    const failed = reason === 'threw' || reason === 'lost' ? { error } : {};
    this.tell({ leader, method, isLeader: false, fencingToken, reason, ...failed });
  }
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

const REASONS: Readonly<Record<Exclude<TermEnd, 'lost' | 'threw'>, string>> = {
  resigned: 'the process resigns',
  returned: 'the method has returned',
  shutdown: 'the application is shutting down',
};
