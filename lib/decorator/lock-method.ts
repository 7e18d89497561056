import 'reflect-metadata';
import { type DeclaredLock, withPlace } from '../core/declared-lock.js';
import type { LockKey } from '../core/keys.js';
import { type LockPolicy, modeOf } from '../core/lock-policy.js';
import { addLockSite } from '../service/lock-sites.js';
import { injectInterceptor, interceptorOf } from './interceptor-injection.js';
import { keepMetadata } from './keep-metadata.js';
import { LockInterceptor, type ResultKind } from './lock.interceptor.js';
import { methodName } from './method-name.js';
import { mocked, notInjected } from './not-injected.js';
import { markOncePerTick } from './schedule/once-per-tick.js';
import { type ScheduledTask, scheduleOf } from './schedule/schedule-metadata.js';

/**
 * @returns the name of the class and of the method
 * @throws TypeError or RangeError naming the class and the method, unless the decorated member is a method and the key
 * and the options are valid
 */
export function checkedName(
  target: object,
  name: string | symbol,
  descriptor: PropertyDescriptor,
  check: () => void,
): string {
  const fullName = methodName('@WithLock', target, name, descriptor);
  try {
    check();
  } catch (error) {
    throw withPlace(`@WithLock of ${fullName}`, error);
  }
  return fullName;
}

/** Lock options of a method. */
export interface MethodLock {
  readonly fullName: string;
  readonly label: string;
  readonly keyOf: (...args: unknown[]) => LockKey;
  /** The fixed keys; `undefined` when a function computes them. */
  readonly keys: readonly string[] | undefined;
  /** The declared lock, if the decorator was given one. */
  readonly lock: DeclaredLock | undefined;
  /** The options of the decorator. */
  readonly options: LockPolicy;
}

/** Replaces the method with a Proxy that acquires the lock, runs the method and releases the lock. */
export function lockMethod(
  target: object,
  name: string | symbol,
  descriptor: PropertyDescriptor,
  { fullName, label, keyOf, keys, lock, options }: MethodLock,
): void {
  const method = descriptor.value as (...args: unknown[]) => unknown;
  const { instance, ttl, release } = lock?.policy ?? options;
  const oncePerTick = options.oncePerTick ?? lock?.policy.oncePerTick;
  const what = lock
    ? { kind: 'declared' as const, lock }
    : { kind: 'key' as const, mode: modeOf(options), keys };
  addLockSite(target, { place: `@WithLock of ${fullName}`, method: name, instance, ttl, release, what });
  injectInterceptor(target, instance);
  const kind = resultKindOf(target, name, method);
  const origin = { label, method: fullName };
  const locked = new Proxy(method, {
    apply(_method, self: unknown, args: unknown[]): unknown {
      const interceptor = interceptorOf(self, instance);
      // Reject a mock of the interceptor: it would return `undefined` without running the method.
      if (!(interceptor instanceof LockInterceptor)) {
        const why = interceptor === undefined ? notInjected : mocked;
        const error = why('@WithLock', fullName);
        if (kind === 'observable' || kind === 'generator') throw error;
        return Promise.reject(error);
      }
      // Look for the schedule at the property first: @nestjs/schedule calls the property, and another decorator may
      // have put a wrapper with the schedule there.
      const task = (): ScheduledTask => ({
        name: `${(self as object).constructor.name}.${String(name)}`,
        schedule: scheduleOf((self as Record<string | symbol, unknown>)[name]) ?? scheduleOf(locked),
      });
      const proceed = (): unknown => Reflect.apply(method, self, args);
      return interceptor.intercept({
        origin,
        key: () => keyOf.apply(self, args),
        lock,
        options,
        kind,
        task,
        proceed,
      });
    },
  });
  keepMetadata(method, locked);
  if (oncePerTick) markOncePerTick(locked, instance, keys);
  descriptor.value = locked;
}

/** Finds the kind of result from the kind of function, and from the return type that the compiler recorded. */
function resultKindOf(
  target: object,
  name: string | symbol,
  method: { constructor: { name: string } },
): ResultKind {
  if (method.constructor.name === 'AsyncGeneratorFunction') return 'generator';
  if (method.constructor.name === 'AsyncFunction') return 'promise';
  let type: unknown = Reflect.getMetadata('design:returntype', target, name);
  for (; typeof type === 'function'; type = Object.getPrototypeOf(type)) {
    // Compare the name: the application may have another copy of rxjs.
    if (type.name === 'Observable') return 'observable';
    if (type.name === 'Promise') return 'promise';
  }
  return 'unknown';
}
