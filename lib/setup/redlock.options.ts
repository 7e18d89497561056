import type { RedisOptions } from 'ioredis';
import type { Store } from '../core/ports.js';
import type { StoreFactory } from '../core/store-factory.js';
import type { RedisClient } from '../stores/redis/driver-for.js';
import type { LockEvent } from '../telemetry/lock-telemetry.events.js';
import { fileOf } from './thread/nodes-file.js';
import { checkNode, isStandAlone, NODES_RULE } from './check-node.js';
import {
  badNumber,
  badOption,
  badValue,
  checkBoolean,
  checkMilliseconds,
  checkOptionNames,
  optionsLike,
} from '../core/checks.js';
import { noHookForCommit } from '../service/transactions.js';
import type { DeclaredLocks } from '../core/declared-lock.js';
import { checkLocks, checkOverrides, type LockOverrides } from '../core/lock-override.js';
import { MOST_NODES } from '../redlock/node-set.js';
import {
  checkLockOptions,
  kindBelongsToLock,
  LOCK_OPTION_NAMES,
  type LockOptions,
  MODULE_OPTION_NAMES,
  whereItBelongs,
} from '../core/lock-options.js';

/**
 * One Redis, or another store. A Redis is given as a URL, as ioredis options, or as your own client, which the module
 * uses and never closes. A client is a `Redis` or `Cluster` of ioredis or iovalkey, the result of `createClient`,
 * `createCluster` or `createSentinel` of node-redis, or a `GlideClient` or `GlideClusterClient` of Valkey GLIDE. Another store is the result of a factory, such as `postgres(...)`
 * of `nestjs-redlock/postgres`, `mysql(...)` of `nestjs-redlock/mysql`, `etcd(...)` of `nestjs-redlock/etcd` or
 * `zookeeper(...)` of `nestjs-redlock/zookeeper`, or your own object with the methods of a store. The module closes a
 * store of either kind at shutdown.
 */
export type RedlockNodeOption = string | RedisOptions | RedisClient | StoreFactory | Store;

/** Options of `RedlockModule.forRoot`. */
export interface RedlockModuleOptions {
  /**
   * The Redis nodes: one, or several independent masters (3 or 5, without replication between them), of which a
   * majority must agree. `'memory'` locks inside this process only, for development and tests. A store that replicates
   * itself, such as `postgres(...)`, must be the only node.
   */
  readonly nodes: 'memory' | RedlockNodeOption | readonly RedlockNodeOption[];

  /**
   * Prefix of every key in Redis, and in every other store that the module opens.
   * @defaultValue 'lock:'
   */
  readonly keyPrefix?: string;

  /**
   * Time limit for the answer of one node, in milliseconds; at least 1. A limit above a fifth of the lock's ttl counts
   * as a fifth (S3).
   * @defaultValue 5 % of the ttl, at least 50; at least 1000 for a node whose connection nobody used for a second
   */
  readonly nodeTimeout?: number;

  /**
   * Allowance for clocks that do not run at the same rate, as a share of the ttl, from 0 to 0.5. The module adds 2 ms
   * to the allowance.
   * @defaultValue 0.01
   * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
   */
  readonly driftFactor?: number;

  /**
   * Milliseconds for which the votes of a node do not count after it started, restarted or lost its data, because it
   * may have forgotten locks that it granted (S12). Give at least the largest ttl of all processes that lock on these
   * nodes. `false` turns the guard off: the nodes must then never lose a write (`appendfsync always`).
   *
   * On 1 and 2 nodes the guard is off by default; an explicit `false` there also turns off the warning that a restart
   * forgets locks. After the first start of all nodes nothing can be locked during this time, see `waitForQuorum`.
   *
   * A restarted node may also forget a key that `minHold` keeps after the release, so the lock may be granted before
   * the end of `minHold`. A guard as long as `minHold` prevents such an early grant.
   * @defaultValue `false` for 1 and 2 nodes. For 3 nodes or more: the largest ttl of all `@WithLock`, `defaults` and
   * calls so far, but at least 10000. A call with a longer ttl makes the guard of recently started nodes longer
   * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ "Performance, crash recovery and
   * fsync"
   */
  readonly restartGuard?: number | false;

  /**
   * Longest time in milliseconds for which start-up waits until the votes of a quorum of nodes count: the nodes must be
   * connected, fit, and past the `restartGuard`. After this time the application starts in any case.
   * @defaultValue start-up waits up to 5 seconds until a quorum is connected, but does not wait until its votes count
   */
  readonly waitForQuorum?: number;

  /**
   * Readable name of this process. Nodes store the name with the locks of the process, and report it to callers that
   * find one of these locks held.
   * @defaultValue host:pid
   */
  readonly owner?: string;

  /** Options for every lock of this module. An option of the lock itself takes precedence. */
  readonly defaults?: LockOptions;

  /**
   * The locks that `defineLocks` has declared; locks for another `instance` are ignored. `strict`, `overrides` and the
   * check of all locks at start-up need this option. Declared locks also work without it.
   * @see docs/declared-locks.md
   */
  readonly locks?: DeclaredLocks;

  /**
   * Refuses locks that `locks` does not declare, with a `RedlockError` with the code `LOCK_NOT_DECLARED`. A `@WithLock`
   * with a key instead of a declared lock is refused when the application starts; a call of `LockService` with a key is
   * refused when it is made. Leaders have names and need no declaration.
   * @defaultValue false
   */
  readonly strict?: boolean;

  /** Overrides of declared locks in this environment, by the names of `locks`: `ttl`, `permits` and `onBusy`. */
  readonly overrides?: LockOverrides;

  /**
   * Called with each event of the locks of this module, such as acquired, refused, skipped, unconfirmed, lost or
   * released. An error of the listener is logged and has no other effect. A returned Promise is not awaited.
   */
  readonly onEvent?: (event: LockEvent) => unknown;

  /**
   * Returns a truthy value if the running call is inside an open database transaction: `true`, or an object that
   * identifies the transaction. With an object, calls of one transaction can join a lock that the transaction keeps
   * (`release`, `reentrant`). The module calls the function for each acquisition, and logs a warning once for each
   * method that releases a lock before the commit. An error of the function is logged once; only a lock with `release:
   * 'afterCommit'` passes the error to the caller.
   * @see docs/transactions.md, which has the code for each database library
   */
  readonly inTransaction?: () => object | boolean | null | undefined;

  /**
   * Calls back once when the transaction of the running call has ended, with a commit or a rollback. Locks with
   * `release: 'afterCommit'` need this function, and the function needs `inTransaction`. If the function throws, the
   * caller of the locked method gets the error, and the method does not run. If the function returns a Promise, the
   * caller gets a TypeError, and the method does not run.
   */
  readonly afterTransaction?: (callback: () => void) => void;

  /**
   * Milliseconds for which shutdown waits for running locked methods. After that time the signals of methods that still
   * run abort, and their locks expire with their ttl.
   * @defaultValue 10000
   */
  readonly shutdownTimeout?: number;

  /**
   * A file that makes the nodes in the thread for `renew: 'thread'`, for nodes that cannot be sent to a thread: clients,
   * stores of your own, and options with functions. It is a module that exports a function `nodes`, which returns the same
   * nodes as the option `nodes`, or a Promise for them. Given as a `file:` URL or an absolute path.
   * @defaultValue the thread gets a copy of `nodes`
   * @see docs/blocked-event-loop.md
   */
  readonly threadNodes?: URL | string;
}

const NAMES: readonly (keyof RedlockModuleOptions)[] = MODULE_OPTION_NAMES;

/**
 * Options of `forRoot` and `forRootAsync` themselves. The providers of the module depend on them, so a factory would
 * return them too late.
 */
const EXTRAS: readonly string[] = ['name', 'isGlobal'];

function remedyFor(name: string): string {
  if ((LOCK_OPTION_NAMES as readonly string[]).includes(name))
    return `Options for every lock belong in \`defaults\`: \`defaults: { ${name}: ... }\``;
  // `forRoot` removes these options before it checks the others, so here they come from a factory.
  if (EXTRAS.includes(name))
    return `The module needs it before the factory runs. Give it beside the factory: \`forRootAsync({ ${name}: ..., useFactory })\``;
  return kindBelongsToLock(name) ?? optionsLike(name, [...NAMES, ...EXTRAS]);
}

/**
 * @throws TypeError or RangeError naming the option, the rule and the value
 */
export function checkModuleOptions(options: RedlockModuleOptions): void {
  if (typeof options === 'string') {
    // The text is probably a URL in place of `{ nodes: url }`. The message does not show it, because it may contain a
    // password.
    throw new TypeError(
      'Expected the options of RedlockModule to be an object such as `{ nodes: url }`, got a string',
    );
  }
  checkOptionNames('RedlockModule', options, NAMES, remedyFor);
  const {
    nodes,
    keyPrefix,
    nodeTimeout,
    driftFactor,
    restartGuard,
    waitForQuorum,
    owner,
    defaults,
    locks,
    strict,
    overrides,
    onEvent,
    shutdownTimeout,
    threadNodes,
  } = options;
  const all: readonly unknown[] = Array.isArray(nodes) ? nodes : [nodes];
  if (all.length === 0) throw badOption('nodes', NODES_RULE, nodes);
  if (all.length > MOST_NODES) {
    const rule = `at most ${MOST_NODES}; three or five are usual`;
    throw badValue('the number of `nodes`', rule, all.length);
  }
  for (const node of all) checkNode(node, all.length);
  if (keyPrefix !== undefined && (typeof keyPrefix !== 'string' || keyPrefix.includes('{}'))) {
    // An empty hash tag would spread the keys of one lock over several slots of a Cluster (S19).
    throw badOption('keyPrefix', 'a string without the empty hash tag "{}"', keyPrefix);
  }
  if (nodeTimeout !== undefined) checkMilliseconds('nodeTimeout', nodeTimeout, 1);
  if (
    driftFactor !== undefined &&
    !(typeof driftFactor === 'number' && driftFactor >= 0 && driftFactor <= 0.5)
  ) {
    throw badNumber('driftFactor', 'a number from 0 to 0.5', driftFactor);
  }
  if (restartGuard !== undefined && restartGuard !== false)
    checkMilliseconds('restartGuard', restartGuard, 1, '`false`, or ');
  if (typeof restartGuard === 'number' && all.some(isStandAlone)) {
    throw new TypeError(
      '`restartGuard` is for nodes that may forget locks in a restart. This store keeps its locks: ' +
        'leave out `restartGuard`',
    );
  }
  if (waitForQuorum !== undefined) checkMilliseconds('waitForQuorum', waitForQuorum, 1);
  if (owner !== undefined && (typeof owner !== 'string' || owner === '')) {
    throw badOption('owner', 'a string that is not empty', owner);
  }
  if (onEvent !== undefined && typeof onEvent !== 'function')
    throw badOption('onEvent', 'a function', onEvent);
  checkTransactionHooks(options);
  if (shutdownTimeout !== undefined) checkMilliseconds('shutdownTimeout', shutdownTimeout, 0);
  if (threadNodes !== undefined) fileOf(threadNodes);
  if (locks !== undefined) checkLocks(locks);
  if (strict !== undefined) checkBoolean('strict', strict);
  if (strict === true && locks === undefined)
    throw new TypeError(
      '`strict` refuses locks that `locks` does not declare: set `locks` to the result of `defineLocks`',
    );
  if (overrides !== undefined) checkOverrides(overrides, locks ?? {});
  if (defaults !== undefined) {
    if (typeof defaults !== 'object' || defaults === null)
      throw badOption('defaults', 'an object of options', defaults);
    checkOptionNames(
      'defaults',
      defaults,
      LOCK_OPTION_NAMES,
      (name) => kindBelongsToLock(name) ?? whereItBelongs(name),
    );
    try {
      checkLockOptions(defaults);
    } catch (error) {
      throw ofDefaults(error);
    }
  }
}

/**
 * Changes the name in the message from `ttl` to `defaults.ttl`. This is done here, so that checkLockOptions, which also
 * runs for calls of LockService, spends no time on it.
 */
function ofDefaults(error: unknown): Error {
  const Kind = error instanceof RangeError ? RangeError : TypeError;
  return new Kind(
    (error as Error).message.replace(
      /^(Expected |Expected the options of |Unknown option `.*?` in )`/,
      '$1`defaults.',
    ),
  );
}

function checkTransactionHooks({ inTransaction, afterTransaction, defaults }: RedlockModuleOptions): void {
  if (inTransaction !== undefined && typeof inTransaction !== 'function')
    throw badOption('inTransaction', 'a function that reports if a transaction is open', inTransaction);
  if (afterTransaction !== undefined && typeof afterTransaction !== 'function')
    throw badOption('afterTransaction', 'a function that takes a callback', afterTransaction);
  if (afterTransaction && !inTransaction) {
    throw new TypeError(
      '`afterTransaction` is called only in an open transaction: also set `inTransaction`, which reports one',
    );
  }
  if (defaults?.release === 'afterCommit' && !afterTransaction) throw noHookForCommit();
}
