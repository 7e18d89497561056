import type { Observable } from 'rxjs';
import { badValue, checkOptionNames } from '../core/checks.js';
import { type DeclaredLock, isDeclaredLock } from '../core/declared-lock.js';
import { keysOf, type LockKey } from '../core/keys.js';
import { whereItBelongs } from '../core/lock-options.js';
import { checkLockPolicy, LOCK_POLICY_NAMES } from '../core/lock-policy.js';
import { checkedName, lockMethod } from './lock-method.js';
import { checkWithLockOptions, type WithLockOptions } from './with-lock.options.js';

/** Methods that can be locked: their result can be asynchronous. */
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
 * metadata, `name` and `length` unchanged. The caller gets the method's result or error, unless the lock was lost
 * meanwhile (`onLost`).
 *
 * @param key - the key or keys to lock: a string, a list of them that makes one lock, or a function of the method's
 * arguments that gives either; its parameters need their types written out
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
  const given = key as LockKey | ((...args: unknown[]) => LockKey);
  const isFixed = typeof given !== 'function';
  const keyOf = isFixed ? (): LockKey => given : given;
  return (target, name, descriptor: PropertyDescriptor) => {
    const fullName = checkedName(target, name, descriptor, () => {
      if (isFixed) keysOf(given);
      checkWithLockOptions(options);
    });
    const label = options.label ?? (typeof given === 'string' ? given : fullName);
    const keys = isFixed ? keysOf(given) : undefined;
    lockMethod(target, name, descriptor, { fullName, label, keyOf, keys, lock: undefined, options });
  };
}

/** The options that a method can give to a declared lock: how it waits, and what it does about a refusal or a loss. */
export type WithDeclaredLockOptions = Pick<
  WithLockOptions,
  'retry' | 'onBusy' | 'reentrant' | 'onLost' | 'oncePerTick'
>;

const DECLARED_NAMES = ['retry', 'onBusy', 'reentrant', 'onLost', 'oncePerTick'];

// A namespace, as the bundled types keep no docstring of a property that is assigned.
// oxlint-disable-next-line typescript/no-namespace
export namespace WithLock {
  /**
   * Like {@link WithLock}, for a declared lock: `defineLocks` sets the key and the policy. The parameters of the method must
   * fit those of its key function.
   *
   * @param options - wait, refusal and loss of this method, in place of those of the declaration; an `onBusy` that the module
   * overrides comes first
   * @throws TypeError or RangeError, when the class is defined, naming the method and what does not fit
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
  export function of<Args extends readonly unknown[]>(
    lock: DeclaredLock<Args>,
    options: WithDeclaredLockOptions = {},
  ): <Method extends LockableMethod>(
    target: object,
    name: string | symbol,
    descriptor: DescriptorFor<(...args: Args) => LockKey, Method>,
  ) => void {
    const declared = lock as unknown as DeclaredLock;
    return (target, name, descriptor: PropertyDescriptor) => {
      const fullName = checkedName(target, name, descriptor, () => {
        if (!isDeclaredLock(lock)) throw badValue('the lock', 'one that `defineLocks` returns', lock);
        checkOptionNames('@WithLock.of', options, DECLARED_NAMES, whereDeclared);
        checkLockPolicy({ ...lock.policy, ...options });
      });
      const { name: label, keys } = declared;
      const keyOf = (...args: unknown[]): LockKey => declared.for(...(args as never[])).keys;
      lockMethod(target, name, descriptor, { fullName, label, keyOf, keys, lock: declared, options });
    };
  }
}

/** Returns advice for an option that only the declaration can have. */
function whereDeclared(name: string): string | undefined {
  return [...LOCK_POLICY_NAMES, 'instance'].includes(name)
    ? `The declared lock says it: change \`${name}\` in \`defineLocks\``
    : whereItBelongs(name);
}
