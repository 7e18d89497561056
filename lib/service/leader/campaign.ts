import type { Log } from '../../core/log.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { LeaderEvent, TermEnd } from '../../telemetry/leader-event.js';
import type { LockOptions, ResolvedLockOptions } from '../../core/lock-options.js';
import { LockHeldError } from '../../core/errors.js';
import { neutrally, tellNeutrally } from '../../core/neutral.js';
import { printable } from '../../core/printable.js';
import { showAs } from '../../core/shown-as.js';
import type { LockRuntime } from '../lock-runtime.js';
import type { LockScope, RunnableLock } from '../lock-scope.js';
import { leaderKey, type LeaderTerm } from './leader-term.js';

/** A method that runs while this process leads. */
export interface LeaderTask {
  /** The name of the leader, from `@Leader`. */
  readonly name: string;
  /** The name of the class and of the method. */
  readonly method: string;
  /** Ttl of the term's lock in milliseconds; by default the module's ttl. */
  readonly ttl: number | undefined;
  /** The options of the renewal; by default the event loop of the process renews the lock. */
  readonly renew: LockOptions['renew'];
  /** The `maxBlocked` of the term's lock in milliseconds; by default the module's. */
  readonly maxBlocked: number | undefined;
  /** Runs the method. The term lasts until the returned promise settles. */
  readonly lead: (term: LeaderTerm) => void | PromiseLike<unknown>;
}

/**
 * Milliseconds before the next attempt after a failure. The pause doubles after each further failure, up to the longest
 * pause. It is back at the first value after a term without a failure, or after a term longer than the longest pause.
 */
const FIRST_BACK_OFF_MS = 1_000;
const LONGEST_BACK_OFF_MS = 30_000;

/** The present term of this process. */
class Term implements LeaderTerm {
  readonly keys: readonly string[];
  readonly fencingToken: number;
  readonly signal: AbortSignal;
  readonly closing: AbortSignal;
  /** Tasks that run under the lock of the term besides the leading method. */
  readonly #tasks = new Set<Promise<unknown>>();
  readonly #lock: RunnableLock;
  readonly #scope: LockScope;
  readonly #onEnd: (term: Term, how: TermEnd, reason: Error) => void;
  readonly #controller = new AbortController();
  #end: TermEnd | undefined;

  constructor(
    lock: RunnableLock,
    scope: LockScope,
    onEnd: (term: Term, how: TermEnd, reason: Error) => void,
  ) {
    this.#lock = lock;
    this.#scope = scope;
    this.#onEnd = onEnd;
    this.keys = lock.keys;
    this.fencingToken = lock.fencingToken;
    this.signal = this.#controller.signal;
    this.closing = lock.closing;
    const { lossSignal } = lock;
    const lost = (): void => this.end('lost', lossSignal.reason as Error);
    lossSignal.addEventListener('abort', lost, { once: true });
  }

  get lock(): RunnableLock {
    return this.#lock;
  }

  get scope(): LockScope {
    return this.#scope;
  }

  get tasks(): Set<Promise<unknown>> {
    return this.#tasks;
  }

  /** Ends the term, unless it has already ended. The lock is released when all tasks under it have settled. */
  end(how: TermEnd, reason: Error): void {
    if (this.#end !== undefined) return;
    this.#end = how;
    // The caller may be a request that resigns, and the listeners belong to other code (S30).
    tellNeutrally(() => {
      this.#onEnd(this, how, reason);
      this.#controller.abort(reason);
    });
  }

  /** The reason for the end of the term; `undefined` while the term lasts. */
  get ended(): TermEnd | undefined {
    return this.#end;
  }
}

showAs(Term, 'LeaderTerm', (term) => term.lock.described());

/**
 * The attempts of one process to become the leader of a name, and the terms in which it leads. During a term it runs
 * the method of the campaign. The method never runs twice at a time: after the loss of a term, the next attempt begins
 * when the method of that term has settled.
 */
export class Campaign {
  /** The last term, until its lock is released. */
  #term: Term | undefined;
  /** Ends the waits of the current attempts. */
  #attempts: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();
  readonly #options: ResolvedLockOptions;

  /**
   * @param tell - a listener for events, which never throws
   * @param released - called after the release of a term's lock; never throws
   */
  constructor(
    private readonly task: LeaderTask,
    private readonly runtime: LockRuntime,
    private readonly log: Log,
    private readonly tell: (event: Omit<LeaderEvent, 'instance'>) => void,
    private readonly released: () => void,
  ) {
    const { ttl, renew = true, maxBlocked } = task;
    this.#options = {
      ...runtime.resolve({
        ...(ttl !== undefined && { ttl }),
        ...(maxBlocked !== undefined && { maxBlocked }),
        renew,
        minHold: 0,
        onLost: 'ignore',
        release: 'afterMethod',
      }),
      retry: { timeout: Infinity, attempts: Infinity, delay: 200, jitter: 100 },
      maxHold: undefined,
      reentrant: false,
    };
  }

  get name(): string {
    return this.task.name;
  }

  /** `true` while this process leads. The answer comes from the clock, as in `LockHandle.isHeld`. */
  isLeader(): boolean {
    return this.#term !== undefined && this.#term.ended === undefined && this.#term.lock.isHeld();
  }

  /**
   * Runs `task` under the lock of the present term, which is not released before `task` has settled.
   *
   * @returns `undefined`, without running `task`, while this process does not lead
   */
  ifLeader(task: () => unknown): unknown {
    const term = this.#term;
    if (!term || !this.isLeader()) return undefined;
    const result = term.scope.settle(task);
    const settled = Promise.resolve(result)
      .catch(() => undefined)
      .then(() => void term.tasks.delete(settled));
    term.tasks.add(settled);
    return result;
  }

  /** Starts the campaign, unless it is already under way. */
  start(): void {
    if (this.runtime.closing.aborted || this.#attempts) return;
    const attempts = new AbortController();
    this.#attempts = attempts;
    // The caller may be a request, or run under a lock, and the campaign outlives it (S30).
    neutrally(() => {
      this.#running = this.#running.then(() => this.#campaign(attempts));
    });
  }

  /**
   * Ends the term and stops the campaign. Resolves when all tasks under the lock have settled and the lock is released.
   * A call from one of these tasks resolves immediately, because it would wait for itself.
   */
  async stop(how: 'resigned' | 'shutdown'): Promise<void> {
    const reason = new Error(REASONS[how]);
    this.#attempts?.abort(reason);
    this.#attempts = undefined;
    const term = this.#term;
    term?.end(how, reason);
    const isUnderTerm = term && this.runtime.current(leaderKey(this.name))?.id === term.lock.id;
    if (!isUnderTerm) await this.#running;
  }

  /** Campaigns and leads until `attempts` aborts. Never rejects. */
  async #campaign(attempts: AbortController): Promise<void> {
    const { name, method } = this.task;
    const { signal } = attempts;
    this.tell({ leader: name, method, isLeader: false });
    let backOff = FIRST_BACK_OFF_MS;
    while (!signal.aborted && this.#attempts === attempts) {
      let failed = true;
      try {
        const origin = { label: leaderKey(name), method };
        const lock = await this.runtime.acquire({
          keys: [leaderKey(name)],
          options: this.#options,
          origin,
          signal,
        });
        const began = performance.now();
        failed = (await this.#lead(lock, attempts)) === 'threw';
        if (!failed || performance.now() - began > LONGEST_BACK_OFF_MS) backOff = FIRST_BACK_OFF_MS;
        if (!failed) continue;
      } catch (error) {
        if (signal.aborted || this.runtime.closing.aborted) return;
        // A lock that is held by another leader is no failure. A campaign waits without a limit, so only a testing
        // module that does not wait rejects with this error.
        if (error instanceof LockHeldError) failed = false;
        else
          this.#log(
            'error',
            `${method} cannot campaign for '${printable(name)}', next try in ${backOff} ms`,
            error,
          );
      }
      await sleep(failed ? backOff : FIRST_BACK_OFF_MS, undefined, { signal, ref: false }).catch(
        () => undefined,
      );
      if (failed) backOff = Math.min(2 * backOff, LONGEST_BACK_OFF_MS);
    }
  }

  /**
   * Leads for one term under `lock`, unless the campaign has stopped or the lock has ended since its acquisition. Always
   * releases the lock afterwards.
   */
  async #lead(lock: RunnableLock, attempts: AbortController): Promise<TermEnd> {
    // Registers the term as a running method, so that a shutdown waits for the term, for `shutdownTimeout` at most.
    const scope = this.runtime.begin(lock, this.#options);
    lock.boundBy = () => 'it is the lock of a leader, which ends when its method returns';
    try {
      if (attempts.signal.aborted) return 'resigned';
      if (!lock.isHeld()) return 'lost';
      const term = new Term(lock, scope, (ended, how, reason) => this.#ended(ended, how, reason));
      this.#term = term;
      await this.#run(term, attempts);
      await Promise.all(term.tasks);
      return term.ended ?? 'returned';
    } finally {
      await scope.end();
      this.#term = undefined;
      this.released();
    }
  }

  /** Runs the method. The term has ended when the promise resolves. */
  async #run(term: Term, attempts: AbortController): Promise<void> {
    const { name: leader, method, lead } = this.task;
    const { fencingToken, lock, scope } = term;
    this.#log('log', `${method} leads '${printable(leader)}', term ${fencingToken}`);
    this.tell({ leader, method, isLeader: true, fencingToken });
    try {
      await scope.settle(() => lead(term));
      // `isHeld` reports a lock that has ended: after a pause of the process, the method may return before the timer
      // reports the end.
      lock.isHeld();
      if (term.ended === undefined && this.#attempts === attempts) this.#attempts = undefined;
      term.end('returned', new Error(`${method} has returned, which ends its term`));
    } catch (cause) {
      lock.isHeld();
      // Ignore an error that the end of the term itself has caused.
      if (term.ended !== undefined && cause !== term.signal.reason && !isAbort(cause))
        this.#log('warn', `${method} threw after the end of its term ${fencingToken}`, cause);
      term.end('threw', new Error(`${method} has thrown, which ends its term`, { cause }));
    }
  }

  /** Reports the end of a term, before its signal aborts. */
  #ended({ fencingToken }: Term, how: TermEnd, reason: Error): void {
    const { name: leader, method } = this.task;
    const ended = `${method} no longer leads '${printable(leader)}', term ${fencingToken}`;
    const error = how === 'lost' ? reason : reason.cause;
    if (how === 'threw')
      this.#log('error', `${ended}: the method threw. The process campaigns again after a pause`, error);
    else if (how === 'lost') this.#log('warn', `${ended}: ${reason.message}`);
    else this.#log('log', `${ended}: ${REASONS[how]}`);
    const failed = how === 'threw' || how === 'lost' ? { error } : {};
    this.tell({ leader, method, isLeader: false, fencingToken, reason: how, ...failed });
  }

  #log(level: 'log' | 'warn' | 'error', message: string, error?: unknown): void {
    this.log[level](error === undefined ? message : `${message}: ${inspect(error)}`);
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
