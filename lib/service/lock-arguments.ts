import { badOption, badValue, checkOptionNames } from '../core/checks.js';
import { type DeclaredLock, isDeclaredLock, isKeyedLock, type KeyedLock } from '../core/declared-lock.js';
import { keysOf, type LockKey, oneKey } from '../core/keys.js';
import {
  type AcquireOptions,
  type AttachOptions,
  checkLabel,
  checkLockKind,
  checkLockOptions,
  LOCK_KIND_OPTION_NAMES,
  LOCK_OPTION_NAMES,
  type ResolvedLockOptions,
  RETRY_OPTION_NAMES,
  whereItBelongs,
} from '../core/lock-options.js';
import { checkLockPolicy, LOCK_POLICY_NAMES, type LockPolicy, optionsFor } from '../core/lock-policy.js';
import type { LockOrigin } from '../telemetry/lock-origin.js';
import type { AttachCall, LockCall } from './lock-call.js';
import type { LockRuntime } from './lock-runtime.js';

/** The accepted forms of a lock's key. */
export type AnyKey = LockKey | DeclaredLock | KeyedLock;

export const NO_OPTIONS: AcquireOptions = {};

const UNLABELLED: LockOrigin = { label: 'other' };

const NAMES: readonly string[] = [...LOCK_OPTION_NAMES, ...LOCK_KIND_OPTION_NAMES, 'label', 'signal'];

/** The options of each method with a key. */
const OPTION_NAMES = {
  withLock: NAMES,
  // `mode` and `permits` are refused later, with the reason.
  oncePerTick: [...NAMES, 'onBusy', 'timeZone'],
  acquire: NAMES.filter((name) => name !== 'onLost' && name !== 'release'),
  tryAcquire: NAMES.filter((name) => name !== 'onLost' && name !== 'release' && name !== 'retry'),
};

type Method = keyof typeof OPTION_NAMES;

/** The options of {@link LockArguments.ofPass}. */
const ATTACH_NAMES: readonly string[] = ['renew', 'maxBlocked', 'retry', 'signal', 'label'];

/** The options of each method with a declared lock. */
const DECLARED_OPTION_NAMES = {
  withLock: ['retry', 'reentrant', 'onLost', 'signal'],
  oncePerTick: ['retry', 'reentrant', 'onLost', 'onBusy', 'signal', 'timeZone'],
  acquire: ['retry', 'reentrant', 'signal'],
  tryAcquire: ['reentrant', 'signal'],
};

/** The options that a call with a declared lock cannot set, because only the declaration can have them. */
const DECLARATION_NAMES: readonly string[] = [...LOCK_POLICY_NAMES, 'instance'];

/** Advice about options that belong to another method or decorator. */
const REMEDIES: ReadonlyMap<string, string> = new Map([
  ['onLost', 'It is for `withLock`; here the `signal` of the lock reports the loss'],
  ['release', 'It is for `withLock`; here call `release()` yourself, after the commit'],
  ['retry', '`tryAcquire` makes one attempt; to wait, use `acquire`'],
  ['onBusy', 'It is for `@WithLock` and `oncePerTick`; here catch the `LockHeldError`, or use `tryAcquire`'],
  ['oncePerTick', 'It is for `@WithLock`; here call `oncePerTick(key, schedule, task)` at each firing'],
  ['timeZone', 'It is for `oncePerTick`'],
  ['utcOffset', "Give an offset as the `timeZone` of `oncePerTick`, such as 'UTC+2'"],
]);

/** The options of a call of `oncePerTick`. */
type TickOptions = Pick<AcquireOptions, 'label' | 'signal'> & LockPolicy;

/** A call of `oncePerTick` without its tick. */
export interface TickCall {
  readonly call: LockCall;
  readonly onBusy: NonNullable<LockPolicy['onBusy']>;
}

function remedyFor(method: Method, name: string): string | undefined {
  if (method === 'tryAcquire' && RETRY_OPTION_NAMES.includes(name)) return REMEDIES.get('retry');
  return REMEDIES.get(name) ?? whereItBelongs(name);
}

/**
 * Reads the arguments of the methods of `LockService` that acquire a lock.
 *
 * All methods throw a TypeError or RangeError that names the wrong key or option, and a RedlockError with the code
 * LOCK_NOT_DECLARED for a lock that a `strict` module does not have.
 */
export class LockArguments {
  constructor(private readonly runtime: LockRuntime) {}

  /** @param rest - the arguments after the key */
  of(method: Method, key: AnyKey, rest: readonly unknown[]): LockCall {
    return isDeclared(key)
      ? this.ofDeclared(method, key, rest)
      : this.ofKey(method, key, ...(rest as [AcquireOptions?]));
  }

  ofKey(method: Method, key: LockKey, options = NO_OPTIONS): LockCall {
    if (this.runtime.declarations.strict) this.runtime.declarations.refuse(keysOf(key));
    const resolved = this.#resolve(method, options);
    return { keys: keysOf(key), options: resolved, origin: originOf(options), signal: options.signal };
  }

  /** Separates the arguments of the key function from the options of the call. */
  ofDeclared(method: Method, key: DeclaredLock | KeyedLock, rest: readonly unknown[]): LockCall {
    const { lock, keys } = keyedOf(key, rest);
    const [options = NO_OPTIONS] = (isDeclaredLock(key) ? [] : rest) as [
      Pick<AcquireOptions, 'retry' | 'reentrant' | 'onLost' | 'signal'>?,
    ];
    checkDeclaredNames(method, options);
    checkLockOptions(options);
    checkSignal(options.signal);
    const { declarations } = this.runtime;
    const resolved = forCaller(method, this.runtime.resolve(declarations.optionsOf(lock, options)));
    declarations.note(lock, keys);
    return { keys, options: resolved, origin: { label: lock.name }, signal: options.signal };
  }

  /** @param declared - the name of the declared lock, from the pass */
  ofPass(options: AttachOptions, declared: string | undefined): AttachCall {
    checkOptionNames('attach', options, ATTACH_NAMES, (name) =>
      (NAMES as readonly string[]).includes(name) ? 'The lock keeps what it was acquired with' : undefined,
    );
    checkLockOptions(options);
    const { renew, maxBlocked, retry, signal, label } = options;
    if (label !== undefined) checkLabel(label);
    checkSignal(signal);
    const given = {
      ...(renew !== undefined && { renew }),
      ...(maxBlocked !== undefined && { maxBlocked }),
      ...(retry !== undefined && { retry }),
    };
    const resolved = this.runtime.resolve({ ...given, release: 'afterMethod' });
    return { options: resolved, origin: originOf({ label: label ?? declared }), signal };
  }

  /** Reads the arguments of `oncePerTick`. A refused call is skipped by default, as with the option of `@WithLock`. */
  ofTick(key: AnyKey, options: TickOptions = NO_OPTIONS): TickCall {
    const { declarations } = this.runtime;
    const declared = isDeclared(key) ? keyedOf(key, []) : undefined;
    if (declared) checkDeclaredNames('oncePerTick', options);
    else
      checkOptionNames('oncePerTick', options, OPTION_NAMES.oncePerTick, (name) =>
        remedyFor('oncePerTick', name),
      );
    const policy = declared ? declarations.optionsOf(declared.lock, options) : options;
    checkLockPolicy({ ...policy, oncePerTick: true });
    const { label, signal } = options;
    if (label !== undefined) checkLabel(label);
    checkSignal(signal);
    const keys = declared?.keys ?? keysOf(key as LockKey);
    if (declared) declarations.note(declared.lock, keys);
    else if (declarations.strict) declarations.refuse(keys);
    const { onBusy = 'skip' } = policy;
    const resolved = this.runtime.resolve(optionsFor(onBusy, policy));
    const origin = declared ? { label: declared.lock.name } : originOf(options);
    return { call: { keys, options: resolved, origin, signal }, onBusy };
  }

  #resolve(method: Method, options: AcquireOptions): ResolvedLockOptions {
    if (options === NO_OPTIONS) return forCaller(method, this.runtime.resolve(options));
    checkOptionNames(method, options, OPTION_NAMES[method], (name) => remedyFor(method, name));
    checkLockOptions(options);
    checkLockKind(options);
    const { label, signal } = options;
    if (label !== undefined) checkLabel(label);
    checkSignal(signal);
    return forCaller(method, this.runtime.resolve(options));
  }
}

/** A lock that its caller releases is not kept until a commit, so a default `release` of the module does not apply. */
function forCaller(method: Method, resolved: ResolvedLockOptions): ResolvedLockOptions {
  if (method === 'withLock' || resolved.release === 'afterMethod') return resolved;
  return { ...resolved, release: 'afterMethod' };
}

function checkDeclaredNames(method: Method, options: object): void {
  checkOptionNames(
    method,
    options,
    DECLARED_OPTION_NAMES[method],
    (name) =>
      remedyFor(method, name) ??
      (DECLARATION_NAMES.includes(name)
        ? `It is an option of the declaration: change \`${name}\` in \`defineLocks\``
        : undefined),
  );
}

function originOf({ label }: { readonly label?: string | undefined }): LockOrigin {
  return label === undefined ? UNLABELLED : { label };
}

function checkSignal(signal: unknown): void {
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw badOption('signal', 'an AbortSignal', signal);
}

export function isDeclared(key: AnyKey): key is DeclaredLock | KeyedLock {
  return typeof key !== 'string' && (isDeclaredLock(key) || isKeyedLock(key));
}

function keyedOf(key: DeclaredLock | KeyedLock, args: readonly unknown[]): KeyedLock {
  return isDeclaredLock(key) ? key.for(...(args as never[])) : key;
}

/** @throws TypeError when a declared lock has several keys */
export function oneKeyOf(key: string | DeclaredLock | KeyedLock, args: readonly unknown[]): string {
  if (!isDeclared(key)) return oneKey(key);
  const { keys } = keyedOf(key, args);
  if (keys.length > 1)
    throw badValue('the keys of the declared lock', 'a single key (give one key in place of the lock)', keys);
  return keys[0]!;
}
