import type { Leaders } from './leader/leaders.js';
import { checkLeaderName } from './leader/leader-term.js';
import { Leadership } from './leader/leadership.js';
import type { LockDeclaration } from './declarations.js';
import { JoinedLock } from './joined-lock.js';
import { type AnyKey, isDeclared, LockArguments, NO_OPTIONS, oneKeyOf } from './lock-arguments.js';
import type { LockRuntime } from './lock-runtime.js';
import { badOption } from '../core/checks.js';
import { type DeclaredLock, isDeclaredLock, type KeyedLock } from '../core/declared-lock.js';
import { LockHeldError } from '../core/errors.js';
import { insteadOf } from './skipped-call.js';
import { type GivenSchedule, tickOf } from './schedule/given-schedule.js';
import {
  checkForceReleaseOptions,
  type ForceReleaseOptions,
  type ListOptions,
} from '../redlock/inspect/lock-inspector.js';
import { type AcquireOptions, type AttachOptions, type LockOptions, NO_RETRY } from '../core/lock-options.js';
import { readPass } from '../core/pass.js';
import { detached } from '../core/neutral.js';
import type { LockKey } from '../core/keys.js';
import { hideFields, showAs } from '../core/shown-as.js';
import type { KeyWaiter } from '../core/ports.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { NodesStatus } from '../core/node-status.js';
import type { LockInfo } from '../core/lock-info.js';

/** Options of {@link LockService.tryAcquire}, which makes one attempt, so there is no `retry`. */
export type TryAcquireOptions = Omit<AcquireOptions, 'retry' | 'onLost' | 'release'>;

/**
 * Options of {@link LockService.acquire} for a declared lock: the limits of the wait, the signal, and whether the call
 * may join a lock under which it is made. The declaration has all other options.
 */
export type DeclaredAcquireOptions = Pick<AcquireOptions, 'retry' | 'reentrant' | 'signal'>;

/** Options of {@link LockService.withLock} for a declared lock. */
export type DeclaredWithLockOptions = DeclaredAcquireOptions & Pick<AcquireOptions, 'onLost'>;

/** Options of {@link LockService.oncePerTick}. */
export interface OncePerTickOptions<Instead = undefined>
  extends LockOptions, DeclaredOncePerTickOptions<Instead> {
  /**
   * The name of the lock in events, traces and metrics. Use a fixed text without ids, because metrics have one series
   * for each name.
   * @defaultValue 'other'
   */
  readonly label?: string;
}

/** Options of {@link LockService.oncePerTick} for a declared lock. The declaration has all other options. */
export interface DeclaredOncePerTickOptions<Instead = undefined> extends DeclaredWithLockOptions {
  /**
   * The time zone of the cron expression, such as `'Europe/Berlin'` or `'UTC+2'`: give the same as to the job. Not with
   * an interval.
   * @defaultValue the time zone of the process
   */
  readonly timeZone?: string;

  /**
   * The result of a call whose tick has run, or whose lock is held. `'skip'`: `undefined`, after one attempt, unless the
   * options have a `retry`. `'throw'`: the `LockHeldError`. A function: the result of the function.
   * @defaultValue that of the declaration, else 'skip'
   */
  readonly onBusy?: 'throw' | 'skip' | ((error: LockHeldError) => Instead);
}

/**
 * Acquires and inspects locks, for code that needs more control than `@WithLock` gives.
 *
 * All methods fail with a `TypeError` or `RangeError` for an invalid key or option: a method that returns a Promise
 * rejects, any other method throws.
 */
export class LockService {
  readonly #arguments: LockArguments;

  /** @internal The module creates the object, or `createLocks`. */
  constructor(
    /** @internal */
    protected readonly runtime: LockRuntime,
    private readonly campaigns: Leaders,
  ) {
    this.#arguments = new LockArguments(runtime);
    hideFields(this, 'runtime', 'campaigns');
  }

  /** @internal Readable name of this process. */
  get owner(): string {
    return this.runtime.owner;
  }

  /**
   * Aborts when the shutdown of the application begins. Calls of `@WithLock` methods that run then may end what they do,
   * for `shutdownTimeout` at most; after that time the signals of their locks abort. Each `LockHandle` has the signal,
   * too.
   *
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * declare function next(): Promise<void>;
   * await locks.withLock('import', async () => {
   *   while (!locks.closing.aborted) await next();
   * });
   * ```
   */
  get closing(): AbortSignal {
    return this.runtime.closing;
  }

  /** @internal The name of this process in the queues of the stores. */
  get process(): string {
    return this.runtime.process;
  }

  /** @internal The ids of the locks that this process holds. */
  get heldIds(): ReadonlySet<string> {
    return this.runtime.heldIds;
  }

  /** @internal The waiters of all processes in the queues of these keys. */
  async waiting(keys: readonly string[]): Promise<ReadonlyMap<string, readonly KeyWaiter[]>> {
    await this.runtime.open();
    return this.runtime.inspection.waiting(keys);
  }

  /**
   * Waits for a lock, within the limits of `retry`. The caller must release it.
   *
   * By default a lock has one holder. `mode: 'shared'` admits all callers with that mode together, and `permits: n`
   * admits `n` callers at a time.
   *
   * @throws LockHeldError when others still held the lock at the end of the wait
   * @throws LockUnavailableError when no quorum of nodes answered
   * @throws the reason of `options.signal` when the signal ended the wait
   * @throws RedlockError with the code `LOCK_UPGRADE`, without a wait, when the calling code already runs under a
   * shared lock of one of the keys, and asks for an exclusive lock or a permit
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * await using lock = await locks.acquire(['account:1', 'account:2'], { ttl: 5_000 });
   * ```
   * @example At most five at a time, over all processes
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * await using lock = await locks.acquire('stripe', { permits: 5, retry: { timeout: 10_000 } });
   * console.log(lock.slot); // 0 to 4, and nobody else's while it is held
   * ```
   * @see docs/kinds-of-lock.md
   */
  acquire<Args extends readonly unknown[]>(lock: DeclaredLock<Args>, ...args: Args): Promise<LockHandle>;
  acquire(lock: KeyedLock, options?: DeclaredAcquireOptions): Promise<LockHandle>;
  acquire(key: LockKey, options?: Omit<AcquireOptions, 'onLost' | 'release'>): Promise<LockHandle>;
  // `acquire` is not `async`: an uncontended lock then needs only one Promise, which is the Promise of the attempt.
  acquire(
    key: AnyKey,
    options: Omit<AcquireOptions, 'onLost' | 'release'> = NO_OPTIONS,
  ): Promise<LockHandle> {
    try {
      const call = isDeclared(key)
        ? this.#arguments.ofDeclared('acquire', key, [...arguments].slice(1))
        : this.#arguments.ofKey('acquire', key, options);
      const acquired = this.runtime.acquire(call);
      return call.options.reentrant ? acquired.then(kept) : acquired;
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /**
   * Makes one attempt. Resolves to `null` when others hold the lock (with `permits`, all permits), or when earlier
   * callers wait for the lock: `tryAcquire` does not overtake them, even if a permit is free. `null` never means that
   * Redis is down.
   *
   * @throws LockUnavailableError when no quorum of nodes answered; RedlockError with the code `LOCK_UPGRADE` under the
   * same conditions as in {@link acquire}
   */
  tryAcquire<Args extends readonly unknown[]>(
    lock: DeclaredLock<Args>,
    ...args: Args
  ): Promise<LockHandle | null>;
  tryAcquire(lock: KeyedLock, options?: Omit<DeclaredAcquireOptions, 'retry'>): Promise<LockHandle | null>;
  tryAcquire(key: LockKey, options?: TryAcquireOptions): Promise<LockHandle | null>;
  async tryAcquire(key: AnyKey, ...rest: unknown[]): Promise<LockHandle | null> {
    const call = this.#arguments.of('tryAcquire', key, rest);
    try {
      return kept(await this.runtime.acquire({ ...call, options: { ...call.options, retry: NO_RETRY } }));
    } catch (error) {
      if (error instanceof LockHeldError) return null;
      throw error;
    }
  }

  /**
   * Takes over a lock that another process has detached ({@link LockHandle.detach}). The lock becomes one of this
   * process: with the same keys, fencing token, ttl and slots, and what is left of its `minHold` and `maxHold`. The
   * caller must release it. Of several callers with the same pass one gets the lock.
   *
   * @param pass - the text that `detach()` has returned, perhaps in another process of an application with the same
   * nodes and `keyPrefix`; it is a secret
   * @throws RedlockError with the code `LOCK_NOT_ATTACHED` when the lock was attached already, was released by force, or
   * has ended because its ttl has passed since the detachment. The code is the same for a pass of a module with another
   * `keyPrefix` or number of nodes, and for a store that cannot exchange leases
   * @throws LockUnavailableError when no quorum of nodes confirmed within the limits of `retry`; a later call may succeed
   * until the ttl has passed
   * @throws TypeError when `pass` is damaged, or no pass at all; the message does not contain it
   * @throws the reason of `options.signal` when the signal ended the attempts
   * @example In the worker of a queue
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * declare function charge(order: string, token: number): Promise<void>;
   * async function process(job: { order: string; pass: string }): Promise<void> {
   *   await using lock = await locks.attach(job.pass);
   *   await charge(job.order, lock.fencingToken);
   * }
   * ```
   * @see docs/service.md
   */
  async attach(pass: string, options: AttachOptions = NO_OPTIONS): Promise<LockHandle> {
    const read = readPass(pass);
    return this.runtime.attach(read, this.#arguments.ofPass(options, read.lock));
  }

  /**
   * Runs `task` under the lock and releases the lock afterwards. The caller gets the result or the error of `task`,
   * also when the release fails.
   *
   * @throws the errors of {@link acquire}; LockLostError when the lock was lost while `task` ran, unless `task` itself
   * threw, or `onLost` is `'ignore'`
   * @example Readers run together, but not beside a writer
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * declare function read(): Promise<string>;
   * declare function write(): Promise<void>;
   * const text = await locks.withLock('catalog:7', { mode: 'shared' }, read);
   * await locks.withLock('catalog:7', write);
   * ```
   */
  withLock<Args extends readonly unknown[], T>(
    lock: DeclaredLock<Args>,
    ...rest: [...args: Args, task: (lock: LockHandle) => Promise<T> | T]
  ): Promise<T>;
  withLock<T>(lock: KeyedLock, task: (lock: LockHandle) => Promise<T> | T): Promise<T>;
  withLock<T>(
    lock: KeyedLock,
    options: DeclaredWithLockOptions | undefined,
    task: (lock: LockHandle) => Promise<T> | T,
  ): Promise<T>;
  withLock<T>(key: LockKey, task: (lock: LockHandle) => Promise<T> | T): Promise<T>;
  withLock<T>(
    key: LockKey,
    options: AcquireOptions | undefined,
    task: (lock: LockHandle) => Promise<T> | T,
  ): Promise<T>;
  withLock<T>(key: AnyKey, ...rest: unknown[]): Promise<T> {
    return detached(() => this.#withLock<T>(key, rest));
  }

  async #withLock<T>(key: AnyKey, rest: unknown[]): Promise<T> {
    const task = rest.pop() as (lock: LockHandle) => Promise<T> | T;
    if (typeof task !== 'function') throw badOption('task', 'a function', task);
    const call = this.#arguments.of('withLock', key, rest);
    const lock = await this.runtime.acquire(call);
    return this.runtime.begin(lock, call.options).run(() => task(lock));
  }

  /**
   * Runs each tick of a schedule on only one instance, although the job fires on all instances: the promise of the option
   * `oncePerTick` of `@WithLock`, for a job that code adds at run time. Call it at each firing of the job.
   *
   * Preconditions: all instances give the same schedule and time zone, their clocks differ by less than a minute,
   * the nodes keep the record of the last run, and no run crashes or loses its lock. A call that comes late, for a tick that
   * has run, is skipped, too.
   *
   * @param key - the key of the lock, and the name of the job: jobs with one key would skip each other's ticks
   * @param schedule - the cron expression of the job, which the package `cron` reads, or an interval in milliseconds. Two
   * runs of an interval begin at least the interval apart, less 10 % or one second, whichever is smaller
   * @returns the result of `task`; `undefined` for a skipped call
   * @throws the errors of {@link withLock}, but no LockHeldError with `onBusy: 'skip'`; TypeError or RangeError for an
   * invalid schedule, time zone or option; Error when the package `cron` is needed and cannot be loaded
   * @example
   * ```ts
   * import { CronJob } from 'cron';
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * declare function send(): Promise<void>;
   * const [cronTime, timeZone] = ['0 9 * * 1-5', 'Europe/Berlin'];
   * const onTick = () => void locks.oncePerTick('reports', cronTime, { timeZone, ttl: 30_000 }, send);
   * CronJob.from({ cronTime, timeZone, onTick, start: true });
   * ```
   * @see docs/cron.md
   */
  oncePerTick<T>(
    key: LockKey | KeyedLock | DeclaredLock<[]>,
    schedule: string | number,
    task: (lock: LockHandle) => Promise<T> | T,
  ): Promise<T | undefined>;
  oncePerTick<T, Instead = undefined>(
    key: KeyedLock | DeclaredLock<[]>,
    schedule: string | number,
    options: DeclaredOncePerTickOptions<Instead> | undefined,
    task: (lock: LockHandle) => Promise<T> | T,
  ): Promise<T | Awaited<Instead>>;
  oncePerTick<T, Instead = undefined>(
    key: LockKey,
    schedule: string | number,
    options: OncePerTickOptions<Instead> | undefined,
    task: (lock: LockHandle) => Promise<T> | T,
  ): Promise<T | Awaited<Instead>>;
  oncePerTick(key: AnyKey, schedule: GivenSchedule, ...rest: unknown[]): Promise<unknown> {
    return detached(() => this.#oncePerTick(key, schedule, rest));
  }

  async #oncePerTick(key: AnyKey, schedule: GivenSchedule, rest: unknown[]): Promise<unknown> {
    const task = rest.pop() as (lock: LockHandle) => unknown;
    if (typeof task !== 'function') throw badOption('task', 'a function, the last argument', task);
    const { runtime } = this;
    const [options] = rest as [OncePerTickOptions<unknown>?];
    const { call: asked, onBusy } = this.#arguments.ofTick(key, options);
    const tick = await tickOf(schedule, options?.timeZone);
    const call = { ...asked, tick };
    let lock;
    try {
      lock = await runtime.acquire(call);
    } catch (error) {
      const [instead] = await insteadOf(error, call, onBusy, runtime, runtime.log);
      return instead;
    }
    if (tick) runtime.telemetry.tickRan({ keys: call.keys, tick: tick.at });
    return runtime.begin(lock, call.options).run(() => task(lock));
  }

  /**
   * The innermost lock of this service under which the running call is made; with `key`, the innermost lock of that
   * key. `undefined` outside of locked code.
   */
  current<Args extends readonly unknown[]>(lock: DeclaredLock<Args>, ...args: Args): LockHandle | undefined;
  current(key?: string | KeyedLock): LockHandle | undefined;
  current(key?: string | DeclaredLock | KeyedLock, ...args: unknown[]): LockHandle | undefined {
    return this.runtime.current(key === undefined ? undefined : oneKeyOf(key, args));
  }

  /**
   * Reads the holders of a key, with the start and the remaining time of each, according to a quorum of nodes. Also
   * returns the answer of each node. Shows the locks of all processes, and changes nothing. The result has all holders
   * of a shared lock or a lock with permits.
   *
   * @throws LockUnavailableError when fewer than a quorum of nodes answered
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * const { held, owner, since } = await locks.inspect('report');
   * ```
   */
  inspect<Args extends readonly unknown[]>(lock: DeclaredLock<Args>, ...args: Args): Promise<LockInfo>;
  inspect(key: string | KeyedLock): Promise<LockInfo>;
  async inspect(key: string | DeclaredLock | KeyedLock, ...args: unknown[]): Promise<LockInfo> {
    const one = oneKeyOf(key, args);
    await this.runtime.open();
    return this.runtime.inspection.inspect(one);
  }

  /**
   * Lists the locks of all processes, in no particular order. Uses `SCAN`, so it does not block Redis, and keeps only
   * one page in memory.
   *
   * The list contains every lock that is held during the whole iteration. A lock that is acquired or released meanwhile
   * may be missing, or may occur twice. A key that fewer than a quorum of nodes store has `held: false`: an attempt or
   * a release did not reach all nodes, and the key expires with its ttl.
   *
   * @throws LockUnavailableError inside the loop, also after the first locks, when fewer than a quorum of nodes
   * answered
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * for await (const { key, owner } of locks.list({ prefix: 'order:' })) console.log(key, owner);
   * ```
   */
  list(options: ListOptions = {}): AsyncIterable<LockInfo> {
    return whenOpen(this.runtime, this.runtime.inspection.list(options));
  }

  /**
   * Ends the lock of any holder on all nodes. Resolves to `true` if there was a lock. Use it for a holder that hangs
   * but still renews: a crashed holder loses its lock when the ttl has passed. All present holders of a shared lock or
   * of permits lose their lock; with `id`, only that holder does.
   *
   * The former holder may still write to the protected resource until its signal aborts: immediately in this process,
   * and at the next renewal in another process. The next holder has a larger fencing token, so a `FencedRegister`
   * refuses later writes of the former holder.
   *
   * @throws LockUnavailableError when fewer than a quorum of nodes answered; the nodes that answered may have ended the
   * lock
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * const { holders } = await locks.inspect('stripe');
   * const hung = holders.find(({ owner }) => owner === 'api-7f9c:1');
   * if (hung) await locks.forceRelease('stripe', { id: hung.id });
   * ```
   */
  forceRelease<Args extends readonly unknown[]>(lock: DeclaredLock<Args>, ...args: Args): Promise<boolean>;
  forceRelease(key: string | KeyedLock, options?: ForceReleaseOptions): Promise<boolean>;
  async forceRelease(key: string | DeclaredLock | KeyedLock, ...rest: unknown[]): Promise<boolean> {
    const one = oneKeyOf(key, rest);
    const [options = {}] = (isDeclaredLock(key) ? [] : rest) as [ForceReleaseOptions?];
    checkForceReleaseOptions(options);
    await this.runtime.open();
    const { released, error } = await this.runtime.inspection.endHolders(one, options);
    const { id, actor } = options;
    this.runtime.telemetry.forceReleased({
      keys: [one],
      ...(id !== undefined && { id }),
      ...(actor !== undefined && { actor }),
      released,
      ...(error && { error }),
    });
    if (error) throw error;
    return released;
  }

  /**
   * The declared locks of this module with the options that apply, including its `defaults` and `overrides`.
   *
   * @see docs/declared-locks.md
   */
  declared(): readonly LockDeclaration[] {
    return this.runtime.declared();
  }

  /**
   * Returns an object that reports which process leads under a name, and whether this process leads. The methods with
   * `@Leader` and the name can be in this application or in another one.
   *
   * @throws TypeError when `name` is not a string, or empty
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * const leadership = locks.leader('consumer');
   * if (!leadership.isLeader()) console.log('led by', (await leadership.current())?.owner);
   * ```
   */
  leader(name: string): Leadership {
    checkLeaderName(name);
    return new Leadership(name, this.campaigns);
  }

  /** The result of {@link leader} for each name that a method of this application gives to `@Leader`. */
  leaders(): Leadership[] {
    return this.campaigns.names.map((name) => this.leader(name));
  }

  /**
   * Reports whether the nodes can grant locks, for example for health checks. Asks every node once. Never rejects.
   *
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * const { available, nodes } = await locks.checkNodes();
   * ```
   */
  async checkNodes(): Promise<NodesStatus> {
    await this.runtime.open().catch(() => undefined);
    return this.runtime.inspection.checkNodes();
  }
}

showAs(LockService, 'LockService', ({ owner, heldIds }) => ({ owner, held: heldIds.size }));

/**
 * Marks a lock as a handle that its caller releases. If the handle has joined an outer lock and is never released, it
 * must not keep the outer lock for ever.
 */
function kept(lock: LockHandle): LockHandle {
  if (lock instanceof JoinedLock) lock.keep();
  return lock;
}

async function* whenOpen<T>(runtime: LockRuntime, items: AsyncIterable<T>): AsyncGenerator<T> {
  await runtime.open();
  yield* items;
}
