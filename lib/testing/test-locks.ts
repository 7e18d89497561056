import { Logger } from '@nestjs/common';
import { checkLeaderName, leaderKey } from '../service/leader/leader-term.js';
import type { RunnableLock } from '../service/lock-scope.js';
import { openRuntime } from '../setup/open-runtime.js';
import { INSTANCE_NAME, RUNTIME, MODULE_OPTIONS_TOKEN } from '../module/redlock.module-definition.js';
import type { RedlockModuleOptions } from '../setup/redlock.options.js';
import { badOption, checkBoolean, checkMilliseconds, checkOptionNames } from '../core/checks.js';
import { isKeyedLock, type KeyedLock } from '../core/declared-lock.js';
import { keysOf, type LockKey } from '../core/keys.js';
import { checkLockKind, checkLockOptions, type LockKindOptions } from '../core/lock-options.js';
import { quoted } from '../core/printable.js';
import { type Fault, type NodeRequest, REQUESTS } from './fault.js';
import type { LockRecord } from './lock-record.js';
import { withRulesOf } from '../setup/store-rules.js';
import { TestNode } from './test-node.js';
import { type Acquired, supervised } from './supervised-runtime.js';

const LOG = new Logger('RedlockModule');

/** Options of {@link TestLocks}. */
export interface TestLocksOptions {
  /**
   * `true`: a call waits for a lock that is not free, within its `retry`. `false`: every call makes one attempt, so
   * that a test need not wait for a held lock, or for a Redis that does not answer.
   * @defaultValue true
   */
  readonly wait?: boolean;
}

/**
 * Options of {@link TestLocks.hold}. `permits` must be the number that the code under test uses: three calls with
 * `permits: 5` hold three of five permits.
 */
export interface HoldOptions extends LockKindOptions {
  /**
   * Readable name of the process that holds the lock.
   * @defaultValue 'another process'
   */
  readonly owner?: string;

  /**
   * Milliseconds until the lock ends by itself, as after a crash of its holder; at least 10.
   * @defaultValue a day, which is practically until the release
   */
  readonly ttl?: number;

  /** The `name` of the `RedlockModule` to which the lock belongs. */
  readonly instance?: string;
}

/** Options of {@link TestLocks.expire} and {@link TestLocks.lose}. */
export interface EndOptions {
  /**
   * The `id` of one of several holders, from its handle or from the result of {@link TestLocks.hold}.
   * @defaultValue all holders of the key
   */
  readonly id?: string;
}

/** Options of {@link TestLocks.fail} and {@link TestLocks.delay}. */
export interface FaultOptions {
  /** The only key that the fault concerns. Without it, the fault concerns all keys. */
  readonly key?: string;

  /**
   * The only kind of request that the fault concerns. `'extend'` renews a held lock. Without `on`, the fault concerns
   * all requests.
   */
  readonly on?: NodeRequest;
}

/** A lock that a simulated other process holds. */
export interface ForeignLock {
  /** Identifies this holder of the key. */
  readonly id: string;

  /** Releases the lock. A second call does nothing. */
  release(): Promise<void>;
}

/**
 * Default ttl of a simulated holder. With such a long ttl the lock needs no renewals, so no timer remains when a test
 * forgets the release.
 */
const A_DAY_MS = 86_400_000;

/**
 * The locks of one test. The applications under test use them in place of Redis. The locks really exclude each other,
 * also across several applications with the same `TestLocks`. A test can let locks fail, be slow, expire or be lost.
 *
 * Fake timers (of Jest, Vitest or `node:test`) control the time of these locks.
 *
 * @example
 * ```ts
 * import { RedlockTestingModule, TestLocks } from 'nestjs-redlock/testing';
 *
 * const locks = new TestLocks();
 * const imports = [RedlockTestingModule.forRoot({ locks })];
 * const other = await locks.hold('order:7');
 * await other.release();
 * ```
 */
export class TestLocks {
  readonly #wait: boolean;
  /** A store for each module instance: locks of different instances do not exclude each other. */
  readonly #nodes = new Map<string | undefined, TestNode>();
  readonly #faults = new Set<Fault>();
  /** Every lock that may still be held. */
  readonly #locks = new Set<RunnableLock>();
  /** The module instance of each lock that an application under test acquired. */
  readonly #owners = new WeakMap<RunnableLock, string | undefined>();
  #history: LockRecord[] = [];

  /** @throws TypeError naming the wrong option */
  constructor(options: TestLocksOptions = {}) {
    checkOptionNames('TestLocks', options, ['wait']);
    const { wait = true } = options;
    checkBoolean('wait', wait);
    this.#wait = wait;
  }

  /** The acquired locks, the oldest first, without the locks of {@link hold}. */
  get history(): readonly LockRecord[] {
    return this.#history;
  }

  /**
   * Holds a lock for a simulated other process: later calls find the lock held. A declared lock, such as
   * `locks['order:settle'].for(42)`, has the kind and the module instance of its declaration.
   *
   * @throws LockHeldError when the lock is already held; TypeError or RangeError naming the invalid argument
   */
  async hold(key: LockKey | KeyedLock, options: HoldOptions = {}): Promise<ForeignLock> {
    checkOptionNames('hold', options, ['owner', 'ttl', 'instance', 'mode', 'permits']);
    const acquire = isKeyedLock(key)
      ? await this.#outsider(key.keys, { ...asDeclared(key), ...options })
      : await this.#outsider(key, options);
    return acquire();
  }

  /**
   * Makes a simulated other process lead under this name, until the returned lock is released or its `ttl` has passed.
   * The application loses its own term, if it has one. Afterwards the application leads again, if one of its methods
   * has `@Leader` with the name.
   *
   * To end only the term, call {@link lose} with the key `leader:<name>`: the application then campaigns again
   * immediately.
   *
   * @throws LockHeldError when a simulated process already leads, or when a second application under test is the first
   * waiter; TypeError or RangeError naming the wrong argument
   */
  async lead(
    name: string,
    options: Pick<HoldOptions, 'owner' | 'ttl' | 'instance'> = {},
  ): Promise<ForeignLock> {
    checkOptionNames('lead', options, ['owner', 'ttl', 'instance']);
    checkLeaderName(name);
    const key = leaderKey(name);
    const acquire = await this.#outsider(key, options);
    // End the application's own term in the same turn as the acquisition, so that the application cannot acquire the
    // lock first.
    const { instance } = options;
    const isOwn = (lock: RunnableLock): boolean =>
      this.#owners.has(lock) && this.#owners.get(lock) === instance && lock.keys.includes(key);
    for (const lock of this.#held().filter(isOwn)) {
      lock.lose('another process leads');
      this.#nodeOf(instance).drop(key, lock.id);
    }
    return acquire();
  }

  /**
   * Simulates a Redis that does not answer: locks cannot be acquired (`LockUnavailableError`) or renewed (they are lost
   * when their validity ends), and released keys stay until the end of their ttl.
   *
   * @param options - `error` is the error of the node
   * @returns a function that ends the fault, as {@link reset} does
   */
  fail(options: FaultOptions & { readonly error?: Error } = {}): () => void {
    checkOptionNames('fail', options, ['key', 'on', 'error']);
    return this.#add({ ...concerning(options), error: options.error ?? new Error('not connected') });
  }

  /**
   * Delays each answer by `ms` milliseconds. An answer after `nodeTimeout` (by default 5 % of the ttl) counts as no
   * answer.
   *
   * @returns a function that ends the fault, as {@link reset} does
   */
  delay(ms: number, options: FaultOptions = {}): () => void {
    checkMilliseconds('ms', ms, 0);
    checkOptionNames('delay', options, ['key', 'on']);
    return this.#add({ ...concerning(options), delay: ms });
  }

  /**
   * Ends the validity of a held lock, as if its renewals had failed. Its holder sees the loss (the signal aborts,
   * `assertHeld()` throws), and the key is free. With several holders (readers, permits) all of them lose the lock;
   * with `id`, only that holder does.
   *
   * @throws Error when the key is free
   */
  expire(key: string, options: EndOptions = {}): void {
    this.#end(key, 'its validity ran out before a quorum renewed it', options, 'expire');
  }

  /**
   * Makes Redis lose a held lock, as in a restart without its data. Its holder sees the loss, and the key is free. With
   * several holders all of them lose the lock; with `id`, only that holder does.
   *
   * @throws Error when the key is free
   */
  lose(key: string, options: EndOptions = {}): void {
    this.#end(key, 'fewer than a quorum of nodes still store it', options, 'lose');
  }

  /** Resets faults, history and locks between two tests. Locks that are still held are lost. */
  reset(): void {
    this.#faults.clear();
    for (const lock of this.#held()) lock.lose('the test reset its locks');
    for (const node of this.#nodes.values()) node.dropAll();
    this.#history = [];
  }

  /**
   * Makes a whole application under test use these locks in place of the `nodes` of its `RedlockModule`s. The other
   * options of the modules stay. A lock that the replaced store can never keep is refused as in production: a ttl that
   * etcd cannot count, a key that PostgreSQL cannot store, keys in different slots of a Redis Cluster.
   *
   * @example
   * ```ts
   * import { Test } from '@nestjs/testing';
   * import { TestLocks } from 'nestjs-redlock/testing';
   *
   * class AppModule {}
   *
   * const locks = new TestLocks();
   * const moduleRef = await locks.override(Test.createTestingModule({ imports: [AppModule] })).compile();
   * ```
   */
  override<Builder extends OverridableBuilder>(builder: Builder): Builder {
    builder.overrideProvider(RUNTIME).useFactory(this.runtimeFactory());
    return builder;
  }

  /**
   * Prepares a simulated process. The returned function makes this process lock the key immediately, or rejects if the
   * key is held.
   */
  async #outsider(key: LockKey, options: HoldOptions): Promise<() => Promise<ForeignLock>> {
    const { owner = 'another process', ttl = A_DAY_MS, instance, ...kind } = options;
    checkLockOptions({ ttl });
    checkLockKind(kind);
    const module: RedlockModuleOptions = { nodes: 'memory', owner };
    const runtime = await openRuntime(module, { nodesOf: () => [this.#nodeOf(instance)], log: LOG });
    await runtime.open();
    const wanted = runtime.resolve({ ttl, retry: false, renew: false, ...kind });
    return async () => {
      const lock = await runtime.acquire({ keys: keysOf(key), options: wanted, origin: { label: 'other' } });
      this.#locks.add(lock);
      return { id: lock.id, release: () => lock.release() };
    };
  }

  /** @internal */
  runtimeFactory(): RuntimeFactory {
    return {
      factory: (options, { name }) =>
        openRuntime(options, {
          name,
          log: LOG,
          nodesOf: () => [withRulesOf(options, this.#nodeOf(name))],
          Runtime: supervised({
            wait: this.#wait,
            acquired: (acquisition) => {
              this.#owners.set(acquisition.lock, name);
              this.#remember(acquisition);
            },
          }),
        }),
      inject: [MODULE_OPTIONS_TOKEN, INSTANCE_NAME],
    };
  }

  #nodeOf(instance: string | undefined): TestNode {
    const node = this.#nodes.get(instance) ?? new TestNode(this.#faults);
    this.#nodes.set(instance, node);
    return node;
  }

  #remember({
    lock,
    call: {
      keys,
      options,
      origin: { label, method },
    },
  }: Acquired): void {
    this.#locks.add(lock);
    this.#history.push({
      keys,
      method,
      label,
      options,
      fencingToken: lock.fencingToken,
      get state() {
        return lock.state;
      },
    });
  }

  #held(): RunnableLock[] {
    for (const lock of this.#locks) if (!lock.isHeld()) this.#locks.delete(lock);
    return [...this.#locks];
  }

  #add(fault: Fault): () => void {
    this.#faults.add(fault);
    return () => void this.#faults.delete(fault);
  }

  #end(key: string, reason: string, options: EndOptions, method: string): void {
    checkOptionNames(method, options, ['id']);
    const { id } = options;
    const held = this.#held();
    const locks = held.filter((lock) => lock.keys.includes(key) && (id === undefined || lock.id === id));
    for (const lock of locks) lock.lose(reason);
    const dropped = [...this.#nodes.values()].map((node) => node.drop(key, id));
    if (locks.length === 0 && !dropped.includes(true)) {
      const others = held.map((lock) => `${quoted(lock.keys)} (${lock.id})`);
      const what = id === undefined ? `"${key}"` : `"${key}" under the id '${id}'`;
      throw new Error(
        `Nobody holds ${what}, so there is no lock to end. Held keys: ${others.join(', ') || 'none'}`,
      );
    }
  }
}

/** Members of the builder of `@nestjs/testing` that this file uses. */
export interface OverridableBuilder {
  overrideProvider(token: unknown): { useFactory(options: RuntimeFactory): unknown };
}

/** Provider options with a function that makes the lock runtime of one module instance. */
interface RuntimeFactory {
  readonly factory: (
    options: RedlockModuleOptions,
    instance: { readonly name: string | undefined },
  ) => Promise<object>;
  readonly inject: (string | symbol)[];
}

/** The options from the declaration of a lock. A test can replace each of these options. */
function asDeclared({ lock }: KeyedLock): Pick<HoldOptions, 'mode' | 'permits' | 'instance'> {
  const { mode, permits, instance } = lock.policy;
  return {
    ...(mode !== undefined && { mode }),
    ...(permits !== undefined && { permits }),
    ...(instance !== undefined && { instance }),
  };
}

/** @throws TypeError naming the wrong option */
function concerning({ key, on }: FaultOptions): Pick<Fault, 'concerns'> {
  if (on !== undefined && !REQUESTS.includes(on)) throw badOption('on', REQUESTS.join(' or '), on);
  if (key !== undefined) keysOf(key);
  return {
    concerns: (request, keys) =>
      (on === undefined || on === request) && (key === undefined || keys.includes(key)),
  };
}
