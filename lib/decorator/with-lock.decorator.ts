import 'reflect-metadata';
import { badValue, checkOptionNames } from '../core/checks.js';
import { type DeclaredLock, isDeclaredLock, withPlace } from '../core/declared-lock.js';
import { fixedKeysOf, type LockKey } from '../core/keys.js';
import { whereItBelongs } from '../core/lock-options.js';
import { checkLockPolicy, LOCK_POLICY_NAMES, type LockPolicy, modeOf } from '../core/lock-policy.js';
import { addLockSite, sitesOfMethod } from './lock-sites.js';
import { refuseBareUse } from './bare-use.js';
import { injectInterceptor, interceptorOf } from './interceptor-injection.js';
import { keepMetadata } from './keep-metadata.js';
import { LockInterceptor, type ResultKind } from './lock.interceptor.js';
import { methodName } from './method-name.js';
import { cannotLock } from './not-injected.js';
import type { LockableDescriptor, Method, Reacting, Skips } from './method-types.js';
import { refuseSameKey } from './same-key.js';
import { markOncePerTick } from './schedule/once-per-tick.js';
import { type ScheduledTask, scheduleOf } from './schedule/schedule-metadata.js';
import { checkWithLockOptions, type WithLockOptions } from './with-lock.options.js';

/**
 * Runs the method under a lock: acquires the lock before the method runs, renews it while the method runs, and releases
 * it afterwards.
 *
 * Works on methods of any class that Nest creates, above or below other decorators. The metadata, `name` and `length`
 * of the method stay the same for other decorators. The caller gets the method's result or error, unless the lock was
 * lost meanwhile (`onLost`).
 *
 * @param key - the key or keys to lock: a string, a list of strings that makes one lock, or a function that computes
 * either from the method's arguments. Write out the types of the function's parameters
 * @throws TypeError or RangeError, when the class is defined, naming the method and the wrong value; TypeError when two
 * decorators of the method lock the same key
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
export function WithLock<
  const Key extends LockKey | ((...args: never[]) => LockKey),
  Busy extends 'throw' | 'skip' | undefined = undefined,
  Tick extends boolean | undefined = undefined,
  Instead = unknown,
>(
  key: Key,
  options: Reacting<WithLockOptions, Busy, Tick, Instead> = {},
): <Of extends Method>(
  target: object,
  name: string | symbol,
  descriptor: LockableDescriptor<Key, Of, Skips<Busy, Tick, Instead>>,
) => void {
  refuseBareUse('@WithLock', arguments, "@WithLock('key')");
  const given = key as LockKey | ((...args: unknown[]) => LockKey);
  const isFixed = typeof given !== 'function';
  const keyOf = isFixed ? (): LockKey => given : given;
  return (target, name, descriptor: PropertyDescriptor) => {
    const fullName = checkedName(target, name, descriptor, () => {
      if (isFixed) fixedKeysOf(given);
      checkWithLockOptions(options);
    });
    const label = options.label ?? (typeof given === 'string' ? given : fullName);
    const keys = isFixed ? fixedKeysOf(given) : undefined;
    lockMethod(target, name, descriptor, { fullName, label, keyOf, keys, lock: undefined, options });
  };
}

/** The options that a method can set for a declared lock: its wait, and its reaction to a refusal or a loss. */
export type WithDeclaredLockOptions = Pick<
  WithLockOptions,
  'retry' | 'onBusy' | 'reentrant' | 'onLost' | 'oncePerTick'
>;

const DECLARED_NAMES = ['retry', 'onBusy', 'reentrant', 'onLost', 'oncePerTick'];

// `of` is in a namespace, because the bundled types would drop the docstring of an assigned property.
export namespace WithLock {
  /**
   * Runs the method under a declared lock, as {@link WithLock} does for a key: `defineLocks` sets the key and the
   * policy. The parameters of the method must fit the parameters of the key function.
   *
   * @param options - replace the declared options for this method. They do not replace an `onBusy` from the `overrides`
   * of the module
   * @throws TypeError or RangeError, when the class is defined, naming the method and the wrong value
   * @example
   * ```ts
   * import { defineLocks, WithLock } from 'nestjs-redlock';
   *
   * const locks = defineLocks({ 'order:settle': { key: (id: number) => `order:${id}`, ttl: 30_000 } });
   *
   * class Orders {
   *   @WithLock.of(locks['order:settle'], { onBusy: 'skip' })
   *   async settle(id: number): Promise<void> {}
   * }
   * ```
   */
  export function of<
    Args extends readonly unknown[],
    Busy extends 'throw' | 'skip' | undefined = undefined,
    Tick extends boolean | undefined = undefined,
    Instead = unknown,
  >(
    lock: DeclaredLock<Args>,
    options: Reacting<WithDeclaredLockOptions, Busy, Tick, Instead> = {},
  ): <Of extends Method>(
    target: object,
    name: string | symbol,
    descriptor: LockableDescriptor<(...args: Args) => LockKey, Of, Skips<Busy, Tick, Instead>>,
  ) => void {
    refuseBareUse('@WithLock.of', arguments, '@WithLock.of(locks[name])');
    const declared = lock as unknown as DeclaredLock;
    return (target, name, descriptor: PropertyDescriptor) => {
      const fullName = checkedName(target, name, descriptor, () => {
        if (!isDeclaredLock(lock)) throw badValue('the lock', 'a lock that `defineLocks` returned', lock);
        checkOptionNames('@WithLock.of', options, DECLARED_NAMES, whereDeclared);
        checkLockPolicy({ ...lock.policy, ...options });
      });
      const { name: label, keys } = declared;
      const keyOf = (...args: unknown[]): LockKey => declared.for(...(args as never[])).keys;
      lockMethod(target, name, descriptor, { fullName, label, keyOf, keys, lock: declared, options });
    };
  }
}

/** Returns advice about an option that only the declaration can have. */
function whereDeclared(name: string): string | undefined {
  return [...LOCK_POLICY_NAMES, 'instance'].includes(name)
    ? `It is an option of the declaration: change \`${name}\` in \`defineLocks\``
    : whereItBelongs(name);
}

/**
 * @returns the name of the class and of the method
 * @throws TypeError or RangeError naming the class and the method, unless the decorated member is a method and the key
 * and the options are valid
 */
function checkedName(
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
interface MethodLock {
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
function lockMethod(
  target: object,
  name: string | symbol,
  descriptor: PropertyDescriptor,
  { fullName, label, keyOf, keys, lock, options }: MethodLock,
): void {
  const method = descriptor.value as (...args: unknown[]) => unknown;
  const { instance, ttl, renew, release } = lock?.policy ?? options;
  const oncePerTick = options.oncePerTick ?? lock?.policy.oncePerTick;
  const what = lock
    ? { kind: 'declared' as const, lock }
    : { kind: 'key' as const, mode: modeOf(options), keys };
  const reentrant = options.reentrant ?? lock?.policy.reentrant;
  const place = `@WithLock of ${fullName}`;
  const site = { place, method: name, instance, ttl, renew, reentrant, release, what };
  refuseSameKey(sitesOfMethod(target, name), site);
  addLockSite(target, site);
  injectInterceptor(target, instance);
  const kind = resultKindOf(target, name, method);
  const origin = { label, method: fullName };
  const locked = new Proxy(method, {
    apply(_method, self: unknown, args: unknown[]): unknown {
      const interceptor = interceptorOf(self, instance);
      if (!(interceptor instanceof LockInterceptor)) {
        const unlocked = { decorator: '@WithLock', method: fullName, self, instance, found: interceptor };
        const error = cannotLock(unlocked);
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
