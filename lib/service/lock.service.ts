import { Injectable } from '@nestjs/common';
import type { Leaders } from './leader/leaders.js';
import { checkLeaderName } from './leader/leader-term.js';
import { Leadership } from './leader/leadership.js';
import { JoinedLock } from './joined-lock.js';
import { currentLockOf } from './lock-context.js';
import type { LockOrigin } from '../telemetry/lock-origin.js';
import type { LockRuntime } from './lock-runtime.js';
import { badOption, checkOptionNames } from '../core/checks.js';
import { LockHeldError } from '../core/errors.js';
import {
  checkForceReleaseOptions,
  type ForceReleaseOptions,
  type ListOptions,
} from '../redlock/inspect/lock-inspector.js';
import { keysOf, type LockKey, oneKey } from '../core/keys.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { NodesStatus } from '../core/node-status.js';
import type { LockInfo } from '../core/lock-info.js';
import {
  type AcquireOptions,
  checkLabel,
  checkLockKind,
  checkLockOptions,
  LOCK_KIND_OPTION_NAMES,
  LOCK_OPTION_NAMES,
  NO_RETRY,
  type ResolvedLockOptions,
} from '../core/lock-options.js';

/** What {@link LockService.tryAcquire} takes: it makes one attempt, so there is nothing to retry. */
export type TryAcquireOptions = Omit<AcquireOptions, 'retry' | 'onLost'>;

const NO_OPTIONS: AcquireOptions = {};

const UNLABELLED: LockOrigin = { label: 'other' };

const NAMES: readonly string[] = [...LOCK_OPTION_NAMES, ...LOCK_KIND_OPTION_NAMES, 'label', 'signal'];

/** What each method reads. */
const OPTION_NAMES = {
  withLock: NAMES,
  acquire: NAMES.filter((name) => name !== 'onLost'),
  tryAcquire: NAMES.filter((name) => name !== 'onLost' && name !== 'retry'),
};

/** What to do in place of an option that is read elsewhere. */
const REMEDIES: ReadonlyMap<string, string> = new Map([
  ['onLost', 'It is for `withLock`; here the `signal` of the lock tells of its loss'],
  ['retry', 'It makes one attempt; to wait, use `acquire`'],
  ['onBusy', 'It is for `@WithLock`; here catch the `LockHeldError`, or use `tryAcquire`'],
]);

/**
 * Locks for code that needs more control than `@WithLock` gives.
 *
 * All methods reject with a `TypeError` or `RangeError` when a key or an option does not fit.
 */
@Injectable()
export class LockService {
  /** @internal Nest creates it. */
  constructor(
    private readonly locker: LockRuntime,
    private readonly campaigns: Leaders,
  ) {}

  /**
   * Waits for a lock, within the limits of `retry`. The caller must release it.
   *
   * By default nobody else holds it. With `mode: 'shared'` others may, who ask for the same; with `permits: n` so many at a
   * time.
   *
   * @throws LockHeldError when others held it to the end; LockUnavailableError when no quorum of nodes answered;
   * the reason of `options.signal` when that ended the wait; RedlockError with the code `LOCK_UPGRADE`, at once, for
   * anything but a shared lock of a key of which the running call has a shared lock
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
  // Not async: the Promise of the attempt is the only one that an uncontended lock needs.
  acquire(key: LockKey, options: Omit<AcquireOptions, 'onLost'> = NO_OPTIONS): Promise<LockHandle> {
    try {
      const resolved = this.#resolve('acquire', options);
      const acquired = this.locker.acquire(keysOf(key), resolved, originOf(options), options.signal);
      return resolved.reentrant ? acquired.then(kept) : acquired;
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /**
   * Makes one attempt. `null` means that somebody holds the lock, with `permits` that all are taken, or that it is kept for
   * others who came earlier and wait in line: it does not pass them, also where a permit is free. Never that Redis is down.
   *
   * @throws LockUnavailableError when no quorum of nodes answered; RedlockError with the code `LOCK_UPGRADE` as {@link acquire}
   */
  async tryAcquire(key: LockKey, options: TryAcquireOptions = {}): Promise<LockHandle | null> {
    const resolved = { ...this.#resolve('tryAcquire', options), retry: NO_RETRY };
    try {
      return kept(await this.locker.acquire(keysOf(key), resolved, originOf(options), options.signal));
    } catch (error) {
      if (error instanceof LockHeldError) return null;
      throw error;
    }
  }

  /**
   * Runs `task` under the lock and releases it afterwards. What `task` returns or throws reaches the caller,
   * whatever the release does.
   *
   * @throws what {@link acquire} throws; LockLostError when the lock was lost while `task` ran, unless `task` threw
   * itself or `onLost` is `'ignore'`
   * @example Readers together, beside no writer
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
  withLock<T>(key: LockKey, task: (lock: LockHandle) => Promise<T> | T): Promise<T>;
  withLock<T>(
    key: LockKey,
    options: AcquireOptions | undefined,
    task: (lock: LockHandle) => Promise<T> | T,
  ): Promise<T>;
  async withLock<T>(
    key: LockKey,
    ...rest:
      | [task: (lock: LockHandle) => Promise<T> | T]
      | [options: AcquireOptions | undefined, task: (lock: LockHandle) => Promise<T> | T]
  ): Promise<T> {
    const [options = {}, task] = rest.length === 1 ? [{}, rest[0]] : rest;
    if (typeof task !== 'function') throw badOption('task', 'a function', task);
    const resolved = this.#resolve('withLock', options);
    const lock = await this.locker.acquire(keysOf(key), resolved, originOf(options), options.signal);
    return this.locker.run(lock, resolved, () => task(lock));
  }

  /**
   * The lock of this service that the running call is under, or the innermost one that has `key`; `undefined`
   * outside of locked code.
   */
  current(key?: string): LockHandle | undefined {
    return currentLockOf(this.locker, key);
  }

  /**
   * Who holds a key, since when and for how long, as a quorum of nodes says, and what each node says. Shows locks of
   * all processes; changes nothing. Of a shared lock, and of one with permits, all holders.
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
  async inspect(key: string): Promise<LockInfo> {
    const one = oneKey(key);
    await this.locker.open();
    return this.locker.inspection.inspect(one);
  }

  /**
   * The locks of all processes, in no order. With `SCAN`, so it does not block Redis, and with no more than a page of
   * them in memory.
   *
   * A lock that is held from the beginning to the end is listed. One that is acquired or released meanwhile may be, and
   * one may come twice. What stands on some nodes without a quorum is listed with `held: false`: what is left of an
   * attempt or a release that did not reach all nodes, and ends with its ttl.
   *
   * @throws LockUnavailableError from the loop, also after some locks, when fewer than a quorum of nodes answered
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * for await (const { key, owner } of locks.list({ prefix: 'order:' })) console.log(key, owner);
   * ```
   */
  list(options: ListOptions = {}): AsyncIterable<LockInfo> {
    return whenOpen(this.locker, this.locker.inspection.list(options));
  }

  /**
   * Ends a lock, whoever holds it, on all nodes; resolves to whether there was one. For a holder that hangs and still
   * renews: one that crashed loses its lock with its ttl. Of a shared lock, and of one with permits, it ends all who hold it
   * when it is called, or, with `id`, one of them.
   *
   * What the lock protects is not protected from the holder any more, until that notices: at once when it is in this
   * process, otherwise at its next renewal. Then its signal aborts. The next holder has a larger fencing token, so a
   * `FencedRegister` refuses what it writes after that one.
   *
   * @throws LockUnavailableError when fewer than a quorum of nodes answered; those that did may have ended it
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
  async forceRelease(key: string, options: ForceReleaseOptions = {}): Promise<boolean> {
    const one = oneKey(key);
    checkForceReleaseOptions(options);
    await this.locker.open();
    return this.locker.inspection.forceRelease(one, options);
  }

  /**
   * The leaders of a name that `@Leader` has, in this application or in another one: who leads, and whether it is this process.
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

  /** The {@link leader} of each name that a method of this application has with `@Leader`. */
  leaders(): Leadership[] {
    return this.campaigns.names.map((name) => this.leader(name));
  }

  /**
   * How fit the nodes are to grant locks, for health checks and the like. Asks every node once. Never rejects.
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
    await this.locker.open().catch(() => undefined);
    return this.locker.inspection.checkNodes();
  }

  #resolve(method: keyof typeof OPTION_NAMES, options: AcquireOptions): ResolvedLockOptions {
    if (options === NO_OPTIONS) return this.locker.resolve(options);
    checkOptionNames(method, options, OPTION_NAMES[method], (name) => REMEDIES.get(name));
    checkLockOptions(options);
    checkLockKind(options);
    const { label, signal } = options;
    if (label !== undefined) checkLabel(label);
    if (signal !== undefined && !(signal instanceof AbortSignal))
      throw badOption('signal', 'an AbortSignal', signal);
    return this.locker.resolve(options);
  }
}

/** Its caller decides when it is released; what has joined a lock must not keep that for ever. */
function kept(lock: LockHandle): LockHandle {
  if (lock instanceof JoinedLock) lock.keep();
  return lock;
}

function originOf({ label }: AcquireOptions): LockOrigin {
  return label === undefined ? UNLABELLED : { label };
}

async function* whenOpen<T>(locker: LockRuntime, items: AsyncIterable<T>): AsyncGenerator<T> {
  await locker.open();
  yield* items;
}
