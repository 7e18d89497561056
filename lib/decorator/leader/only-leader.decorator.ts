import 'reflect-metadata';
import { checkOptionNames } from '../../core/checks.js';
import { injectInterceptor, interceptorOf } from '../interceptor-injection.js';
import { LockInterceptor } from '../lock.interceptor.js';
import { keepMetadata } from '../keep-metadata.js';
import { refuseBareUse } from '../bare-use.js';
import { cannotLock } from '../not-injected.js';
import { checkLeaderName } from '../../service/leader/leader-term.js';
import { methodName } from '../method-name.js';
import type { Method, SkippableDescriptor } from '../method-types.js';
import { checkInstance, type LeaderOptions, misuse } from './leader.decorator.js';

/** Options of `@OnlyLeader`. */
export type OnlyLeaderOptions = Pick<LeaderOptions, 'instance'>;

const ONLY_LEADER = 'nestjs-redlock:only-leader';

/** Metadata of `@OnlyLeader` on a class. */
export interface NeededLeader extends OnlyLeaderOptions {
  readonly name: string;
  /** The name of the class and of the method. */
  readonly method: string;
}

/**
 * Runs the method only while this process leads under the name; in other processes the call resolves to `undefined`.
 * Write the decorator above or below `@Cron`, `@Interval` or the decorator of a handler.
 *
 * The decorator checks only once, before the method runs, and without a request to the nodes. The method then runs
 * under the lock of the term: `currentLock()` is that lock, its signal aborts when the lock is lost, and its fencing
 * token is the token of the term. After a resignation or a shutdown, another process leads only when the method has
 * settled.
 *
 * Start-up fails if no method of the application has `@Leader` with this name.
 *
 * @throws TypeError, when the class is defined, naming the method and the wrong value
 * @example
 * ```ts
 * import { Interval } from '@nestjs/schedule';
 * import { OnlyLeader } from 'nestjs-redlock';
 *
 * class Cleaner {
 *   @Interval(60_000)
 *   @OnlyLeader('consumer')
 *   async sweep(): Promise<void> {}
 * }
 * ```
 */
export function OnlyLeader(
  name: string,
  options: OnlyLeaderOptions = {},
): <Of extends Method>(target: object, method: string | symbol, descriptor: SkippableDescriptor<Of>) => void {
  refuseBareUse('@OnlyLeader', arguments, "@OnlyLeader('name')");
  return (target, property, descriptor: PropertyDescriptor) => {
    const fullName = methodName('@OnlyLeader', target, property, descriptor);
    try {
      checkLeaderName(name);
      checkOptionNames('@OnlyLeader', options, ['instance']);
      checkInstance(options.instance);
    } catch (error) {
      throw misuse(`@OnlyLeader of ${fullName}`, error);
    }
    const { instance } = options;
    injectInterceptor(target, instance);
    const needed: NeededLeader = { name, method: fullName, ...options };
    Reflect.defineMetadata(ONLY_LEADER, [...neededLeadersOf(target), needed], target);
    const method = descriptor.value as (...args: unknown[]) => unknown;
    const guarded = new Proxy(method, {
      apply(_method, self: unknown, args: unknown[]): unknown {
        const interceptor = interceptorOf(self, instance);
        if (!(interceptor instanceof LockInterceptor)) {
          const unlocked = { decorator: '@OnlyLeader', method: fullName, self, instance, found: interceptor };
          return Promise.reject(cannotLock(unlocked));
        }
        return interceptor.onlyLeader(name, fullName, () => Reflect.apply(method, self, args));
      },
    });
    keepMetadata(method, guarded);
    descriptor.value = guarded;
  };
}

/** The leaders that methods of the object's class and its base classes need. */
export function neededLeadersOf(object: object): readonly NeededLeader[] {
  return (Reflect.getMetadata(ONLY_LEADER, object) as readonly NeededLeader[] | undefined) ?? [];
}
