import 'reflect-metadata';
import type { Observable } from 'rxjs';
import { declareTtl } from '../service/declared-ttls.js';
import { injectInterceptor, interceptorOf } from './interceptor-injection.js';
import { keepMetadata } from './keep-metadata.js';
import { LockInterceptor, type ResultKind } from './lock.interceptor.js';
import { mocked, notInjected } from './not-injected.js';
import { markOncePerTick } from './schedule/once-per-tick.js';
import { keysOf, type LockKey } from '../core/keys.js';
import { type ScheduledTask, scheduleOf } from './schedule/schedule-metadata.js';
import { checkWithLockOptions, type WithLockOptions } from './with-lock.options.js';

/** What a locked method may be: its result must be able to come later than its call. */
type LockableMethod = (
  ...args: never[]
) => PromiseLike<unknown> | Observable<unknown> | AsyncIterable<unknown>;

/** The descriptor of a method, if the key function can be called with the method's own arguments. */
type DescriptorFor<Key, Method extends LockableMethod> = Key extends (...args: never[]) => unknown
  ? Key extends (...args: Parameters<Method>) => unknown
    ? TypedPropertyDescriptor<Method>
    : TypedPropertyDescriptor<Method> & {
        readonly 'the key function must take the parameters of the method, each with its type': never;
      }
  : TypedPropertyDescriptor<Method>;

/**
 * Runs the method under a lock: acquires before it runs, renews while it runs, releases afterwards.
 *
 * For methods of any class that Nest creates, above or below other decorators. Other decorators find the method's
 * metadata, `name` and `length` unchanged. What the method returns or throws reaches the caller, unless the lock was lost
 * meanwhile (`onLost`).
 *
 * @param key - what to lock: a string, a list of them that makes one lock, or a function of the method's arguments that
 * gives either; its parameters need their types written out
 * @throws TypeError or RangeError, when the class is defined, naming the method and what does not fit
 * @example
 * ```ts
 * import { WithLock } from 'nestjs-redlock';
 *
 * class Orders {
 *   @WithLock((id: number) => `order:${id}`, { ttl: 10_000, retry: { timeout: 3_000 } })
 *   async settle(id: number): Promise<void> {}
 * }
 * ```
 */
export function WithLock<const Key extends LockKey | ((...args: never[]) => LockKey)>(
  key: Key,
  options: WithLockOptions = {},
): <Method extends LockableMethod>(
  target: object,
  name: string | symbol,
  descriptor: DescriptorFor<Key, Method>,
) => void {
  const keyOf = typeof key === 'function' ? (key as (...args: unknown[]) => LockKey) : (): LockKey => key;

  return (target, name, descriptor: PropertyDescriptor) => {
    const method: unknown = descriptor?.value;
    if (typeof method !== 'function' || typeof target === 'function') {
      const what = name === undefined ? 'a class' : `\`${String(name)}\``;
      // Each object makes a property of its own, after the decorator has seen the class.
      const isProperty = name !== undefined && descriptor === undefined && typeof target !== 'function';
      const remedy = isProperty
        ? `. Write \`async ${String(name)}() { ... }\` in place of \`${String(name)} = async () => { ... }\``
        : '';
      throw new TypeError(`@WithLock is for methods of an instance, which ${what} is not${remedy}`);
    }
    const fullName = `${target.constructor.name}.${String(name)}`;
    try {
      if (typeof key !== 'function') keysOf(key);
      checkWithLockOptions(options);
    } catch (error) {
      const Kind = error instanceof RangeError ? RangeError : TypeError;
      throw new Kind(`@WithLock of ${fullName}: ${(error as Error).message}`);
    }
    injectInterceptor(target, options.instance);
    const { ttl, instance } = options;
    if (ttl !== undefined) declareTtl(target, { method: `@WithLock of ${fullName}`, instance, ttl });
    const kind = resultKindOf(target, name, method);
    const origin = {
      label: options.label ?? (typeof key === 'string' ? key : fullName),
      method: fullName,
    };
    const locked = new Proxy(method, {
      apply(_method, self: unknown, args: unknown[]): unknown {
        const interceptor = interceptorOf(self, options.instance);
        // The stand-in of a mocking library would answer `undefined` without running the method.
        if (!(interceptor instanceof LockInterceptor)) {
          const why = interceptor === undefined ? notInjected : mocked;
          const error = why('@WithLock', fullName);
          if (kind === 'observable' || kind === 'generator') throw error;
          return Promise.reject(error);
        }
        // What Nest calls on schedule is what the object has by that name: maybe a wrapper around this.
        const task = (): ScheduledTask => ({
          name: `${(self as object).constructor.name}.${String(name)}`,
          schedule: scheduleOf((self as Record<string | symbol, unknown>)[name]) ?? scheduleOf(locked),
        });
        const proceed = (): unknown => Reflect.apply(method, self, args);
        return interceptor.intercept({
          origin,
          key: () => keyOf.apply(self, args),
          options,
          kind,
          task,
          proceed,
        });
      },
    });
    keepMetadata(method, locked);
    if (options.oncePerTick) {
      markOncePerTick(locked, options.instance, typeof key === 'function' ? undefined : key);
    }
    descriptor.value = locked;
  };
}

/** Told from the kind of function and the return type that the compiler recorded. */
function resultKindOf(
  target: object,
  name: string | symbol,
  method: { constructor: { name: string } },
): ResultKind {
  if (method.constructor.name === 'AsyncGeneratorFunction') return 'generator';
  if (method.constructor.name === 'AsyncFunction') return 'promise';
  let type: unknown = Reflect.getMetadata('design:returntype', target, name);
  for (; typeof type === 'function'; type = Object.getPrototypeOf(type)) {
    // By name: the application may have another copy of rxjs.
    if (type.name === 'Observable') return 'observable';
    if (type.name === 'Promise') return 'promise';
  }
  return 'unknown';
}
