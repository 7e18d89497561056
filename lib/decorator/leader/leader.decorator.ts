import 'reflect-metadata';
import { badOption, checkOptionNames } from '../../core/checks.js';
import { checkLockOptions } from '../../core/lock-options.js';
import { fixedKeysOf } from '../../core/keys.js';
import { addLockSite } from '../lock-sites.js';
import { checkLeaderName, leaderKey, type LeaderTerm } from '../../service/leader/leader-term.js';
import { injectInterceptor } from '../interceptor-injection.js';
import { refuseBareUse } from '../bare-use.js';
import { methodName } from '../method-name.js';

/** Options of `@Leader`. */
export interface LeaderOptions {
  /**
   * Milliseconds after which another process leads when this process has crashed; at least 10. With less than 1000,
   * even a short pause of the process can end its term.
   * @defaultValue the `ttl` of the module's `defaults`, else 10000
   */
  readonly ttl?: number;

  /**
   * `'thread'` to renew the lock of the term in a worker thread, so that a blocked event loop does not end the term. The
   * thread needs nodes that it can open itself.
   * @defaultValue true
   * @see docs/blocked-event-loop.md
   */
  readonly renew?: true | 'thread';

  /**
   * Milliseconds for which the thread of `renew: 'thread'` renews while the event loop is blocked; at least 1000.
   * @defaultValue the `maxBlocked` of the module's `defaults`, else 60000
   */
  readonly maxBlocked?: number;

  /**
   * The `name` of the `RedlockModule` that keeps the lock.
   * @defaultValue the instance without a name
   */
  readonly instance?: string;
}

/** A method that leads; its result is awaited and then ignored. */
type LeadMethod = (term: LeaderTerm) => void | PromiseLike<unknown>;

const LEADERS = 'nestjs-redlock:leaders';

/** Metadata of `@Leader` on a class. */
export interface DeclaredLeader extends LeaderOptions {
  readonly name: string;
  readonly method: string | symbol;
}

/**
 * Runs the method in one process at a time. Every instance of the application campaigns from its bootstrap on, and the
 * winner runs the method with its term.
 *
 * - The signal of the term aborts when its lock is lost, when the process resigns and when the application shuts down.
 *   The method should then return. After a lost lock, the process campaigns again.
 * - When the method returns before the end of its term, the process resigns. It does not campaign until
 *   `locks.leader(name).campaign()` or its next start.
 * - When the method throws, the process resigns and campaigns again after 1 s. After each further error the pause
 *   doubles, up to 30 s.
 *
 * Another process leads about a millisecond after a resignation or a shutdown, and within the ttl after a crash.
 *
 * @param name - the same in all processes; the locked key is `leader:` and the name
 * @throws TypeError or RangeError, when the class is defined, naming the method and the wrong value
 * @example
 * ```ts
 * import { Leader, type LeaderTerm } from 'nestjs-redlock';
 *
 * declare function messages(signal: AbortSignal): AsyncIterable<string>;
 *
 * class Consumer {
 *   @Leader('consumer', { ttl: 10_000 })
 *   async lead(term: LeaderTerm): Promise<void> {
 *     for await (const message of messages(term.signal)) console.log(term.fencingToken, message);
 *   }
 * }
 * ```
 * @see docs/leader.md
 */
export function Leader(
  name: string,
  options: LeaderOptions = {},
): <Method extends LeadMethod>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void {
  refuseBareUse('@Leader', arguments, "@Leader('name')");
  return (target, method, descriptor) => {
    const fullName = methodName('@Leader', target, method, descriptor);
    try {
      checkLeaderName(name);
      fixedKeysOf(leaderKey(name), 'the key of the leader');
      checkOptionNames('@Leader', options, ['ttl', 'renew', 'maxBlocked', 'instance']);
      const { ttl, renew, maxBlocked } = options;
      if ((renew as unknown) === false) throw badOption('renew', "`true` or 'thread'", renew);
      // The `defaults` of the module have no say in whether the lock of a leader is renewed.
      checkLockOptions({ ttl, renew: renew ?? true, maxBlocked });
      checkInstance(options.instance);
    } catch (error) {
      throw misuse(`@Leader of ${fullName}`, error);
    }
    const { ttl, renew, instance } = options;
    injectInterceptor(target, instance);
    addLockSite(target, {
      place: `@Leader of ${fullName}`,
      method,
      instance,
      ttl,
      renew,
      what: { kind: 'leader', mode: 'exclusive', keys: [leaderKey(name)] },
    });
    const declared: DeclaredLeader = { name, method, ...options };
    // A subclass that overrides a method may repeat the decorator of the method. The new entry then replaces the
    // inherited entry.
    const others = leadersOf(target).filter((other) => other.method !== method || other.name !== name);
    Reflect.defineMetadata(LEADERS, [...others, declared], target);
  };
}

/** The leaders that the object's class and its base classes declare. */
export function leadersOf(object: object): readonly DeclaredLeader[] {
  return (Reflect.getMetadata(LEADERS, object) as readonly DeclaredLeader[] | undefined) ?? [];
}

/** @throws TypeError */
export function checkInstance(instance: unknown): void {
  if (instance !== undefined && (typeof instance !== 'string' || instance === ''))
    throw badOption('instance', 'the `name` of a RedlockModule', instance);
}

/** Copies the error about an option of a decorator, with the method before the message. */
export function misuse(where: string, error: unknown): Error {
  const Kind = error instanceof RangeError ? RangeError : TypeError;
  return new Kind(`${where}: ${(error as Error).message}`);
}
