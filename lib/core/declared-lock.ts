import { badOption, checkOptionNames } from './checks.js';
import { fixedKeysOf, keysOf, type LockKey } from './keys.js';
import { whereItBelongs } from './lock-options.js';
import { checkLockPolicy, LOCK_POLICY_NAMES, type LockPolicy } from './lock-policy.js';
import { quoted } from './printable.js';

/** The key of a declared lock: a fixed key, a list of keys that make one lock, or a function that returns either. */
export type DeclaredKey = LockKey | ((...args: never[]) => LockKey);

/** The definition of one lock in {@link defineLocks}. */
export interface LockDefinition<Key extends DeclaredKey = DeclaredKey> extends LockPolicy {
  /**
   * The key to lock. A function computes it from arguments such as an id. Write out the types of its parameters, and
   * return the same key for the same arguments in every process.
   */
  readonly key: Key;

  /** The team that is responsible for the lock. */
  readonly team?: string;

  /** The purpose of the lock, in one line. */
  readonly about?: string;
}

/**
 * A lock that {@link defineLocks} has declared. `@WithLock.of(lock)` and the methods of `LockService` take it in place
 * of a key and its options.
 *
 * @typeParam Args - the parameters of the lock's key function; none for a fixed key
 */
export interface DeclaredLock<Args extends readonly unknown[] = never[]> {
  /** The name of the declaration: the label of the lock in events, traces and metrics. */
  readonly name: string;

  /** The declared options; a module can override some of them. */
  readonly policy: LockPolicy;

  /** The fixed key or keys; `undefined` when a function computes them. */
  readonly keys: readonly string[] | undefined;

  /** The team that is responsible for the lock. */
  readonly team: string | undefined;

  /** The purpose of the lock. */
  readonly about: string | undefined;

  /**
   * Binds the arguments of the key function, for calls that also take options: `acquire(locks['order:settle'].for(42),
   * { signal })`.
   *
   * @throws TypeError when the key function does not return a usable key
   */
  readonly for: (...args: Args) => KeyedLock;
}

/** A declared lock with bound arguments. Every method that takes a key also takes this object. */
export interface KeyedLock {
  readonly lock: DeclaredLock;

  /** The locked keys, sorted and without repetitions. */
  readonly keys: readonly string[];
}

/** The type of any result of {@link defineLocks}: declared locks by their names. */
export type DeclaredLocks = Readonly<Record<string, DeclaredLock>>;

/** The parameters of a key function; none for a fixed key. */
type ArgsOf<Key> = Key extends (...args: infer Args) => unknown ? Args : [];

// A global symbol identifies a declared lock in every copy of this package: the application and the command line can
// load one copy each.
const DECLARED = Symbol.for('nestjs-redlock:declared-lock');
const KEYED = Symbol.for('nestjs-redlock:keyed-lock');

const NAMES: readonly string[] = ['key', ...LOCK_POLICY_NAMES, 'instance', 'team', 'about'];

/**
 * Declares locks in one place: the key, the ttl, the module instance and the responsible team of each. A module with
 * these locks in its option `locks` can forbid all other locks with `strict`.
 *
 * @returns the locks by their names, frozen
 * @throws TypeError or RangeError naming the lock, the option, the rule and the value
 * @example
 * ```ts
 * import { defineLocks, RedlockModule, WithLock } from 'nestjs-redlock';
 *
 * const locks = defineLocks({
 *   'order:settle': { key: (id: number) => `order:${id}`, ttl: 30_000, team: 'payments', about: 'one settlement at a time' },
 *   'tenant:report': { key: (tenant: string) => `report:${tenant}`, permits: 5 },
 * });
 *
 * RedlockModule.forRoot({ nodes: 'redis://localhost:6379', locks, strict: true });
 *
 * class Orders {
 *   @WithLock.of(locks['order:settle'])
 *   async settle(id: number): Promise<void> {}
 * }
 * ```
 * @see docs/declared-locks.md
 */
export function defineLocks<const Keys extends Readonly<Record<string, DeclaredKey>>>(definitions: {
  readonly [Name in keyof Keys]: LockDefinition<Keys[Name]>;
}): { readonly [Name in keyof Keys]: DeclaredLock<ArgsOf<Keys[Name]>> };
export function defineLocks(definitions: Readonly<Record<string, LockDefinition>>): DeclaredLocks {
  if (typeof definitions !== 'object' || definitions === null || Array.isArray(definitions))
    throw badOption('definitions', 'an object with a lock under each name', definitions);
  const declared = Object.entries(definitions).map(([name, definition]) => [name, declare(name, definition)]);
  return Object.freeze(Object.fromEntries(declared) as Record<string, DeclaredLock>);
}

function declare(name: string, definition: LockDefinition): DeclaredLock {
  try {
    check(name, definition);
  } catch (error) {
    throw withPlace(`The lock ${quoted([name])} in \`defineLocks\``, error);
  }
  const { key, team, about, ...policy } = definition;
  const keyOf = typeof key === 'function' ? (key as (...args: unknown[]) => LockKey) : undefined;
  const keys = typeof key === 'function' ? undefined : Object.freeze(fixedKeysOf(key));
  const lock: DeclaredLock = {
    name,
    policy: Object.freeze(policy),
    keys,
    team,
    about,
    for: (...args: unknown[]) => {
      const given =
        keys ??
        keysOf(keyOf!(...args), `the result of the key function of the declared lock ${quoted([name])}`);
      return marked(KEYED, { lock, keys: given });
    },
  };
  return marked(DECLARED, lock);
}

function check(name: string, definition: LockDefinition): void {
  if (name === '')
    throw new TypeError('Expected a name that is not empty: metrics, traces and errors show it');
  checkOptionNames(name, definition, NAMES, (option) =>
    option === 'label'
      ? 'The name of a declared lock is its label: leave out `label`'
      : whereItBelongs(option),
  );
  const { key, team, about } = definition;
  if (typeof key !== 'function') fixedKeysOf(key);
  checkLockPolicy(definition);
  for (const [option, text] of Object.entries({ team, about })) {
    if (text !== undefined && (typeof text !== 'string' || text === ''))
      throw badOption(option, 'a string that is not empty', text);
  }
}

/** Copies the error about an option, with the same class, and with `place` before the message. */
export function withPlace(place: string, error: unknown): Error {
  const Kind = error instanceof RangeError ? RangeError : TypeError;
  return new Kind(`${place}: ${(error as Error).message}`);
}

function marked<T extends object>(mark: symbol, value: T): T {
  return Object.freeze(Object.defineProperty(value, mark, { value: true }));
}

/** `true` for a lock that {@link defineLocks} made. */
export function isDeclaredLock(value: unknown): value is DeclaredLock {
  return typeof value === 'object' && value !== null && DECLARED in value;
}

/** `true` for a declared lock with bound arguments. */
export function isKeyedLock(value: unknown): value is KeyedLock {
  return typeof value === 'object' && value !== null && KEYED in value;
}
