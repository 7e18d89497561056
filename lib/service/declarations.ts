import type { Log } from '../core/log.js';
import type { DeclaredLock, DeclaredLocks } from '../core/declared-lock.js';
import { RedlockError } from '../core/errors.js';
import { keyPatterns } from '../core/key-pattern.js';
import { isReaderAndWriter, type LockMode } from '../core/lock-mode.js';
import type { LockOptions, ResolvedLockOptions } from '../core/lock-options.js';
import { type LockOverrides, overridden } from '../core/lock-override.js';
import { type LockPolicy, modeOf } from '../core/lock-policy.js';
import { quoted } from '../core/printable.js';
import type { LockSite } from './lock-site.js';

/** A module's settings for declared locks. */
export interface DeclarationSettings {
  /** The `name` of the module, which decorators give as `instance`; `undefined` for a module without a name. */
  readonly instance?: string | undefined;
  readonly locks?: DeclaredLocks | undefined;
  readonly strict?: boolean | undefined;
  readonly overrides?: LockOverrides | undefined;
}

/**
 * A declared lock with the options that apply in a module, as `LockService.declared` returns it. Times are in
 * milliseconds.
 */
export interface LockDeclaration
  extends
    Pick<DeclaredLock, 'name' | 'keys' | 'team' | 'about'>,
    Required<Pick<LockOptions, 'ttl' | 'renew' | 'minHold' | 'reentrant' | 'onLost' | 'release'>> {
  /**
   * The patterns of the lock's keys, with `*` for each argument. Empty if the key function does more than insert its
   * arguments into texts. Patterns for some branches of the function may be missing.
   */
  readonly patterns: readonly string[];
  readonly mode: LockMode;
  /** The number of permits; `undefined` without permits. */
  readonly permits: number | undefined;
  /** Milliseconds; `undefined` without `renew: 'thread'`. */
  readonly maxBlocked: number | undefined;
  /** Milliseconds; `undefined` without a limit. */
  readonly maxHold: number | undefined;
  /** `'function'` if the option `onBusy` is a function. */
  readonly onBusy: 'throw' | 'skip' | 'function';
  readonly oncePerTick: boolean;
  /** The names of the options that the module overrides. */
  readonly overridden: readonly string[];
}

/** The options that one use of a declared lock can set. */
export type DeclaredUse = Pick<LockOptions, 'retry' | 'reentrant' | 'onLost'> &
  Pick<LockPolicy, 'onBusy' | 'oncePerTick'>;

/**
 * A declared lock or a decorator that locks a fixed key. {@link Declarations.check} compares the policies of all claims
 * on the same key.
 */
interface Claim {
  /** A name for messages. */
  readonly who: string;
  readonly mode: LockMode;
  readonly lock: DeclaredLock | undefined;
}

/** The number of computed keys that are remembered in order to detect two locks with the same key. */
const MOST_KEYS = 1_000;

/** The declared locks of one module instance, with its overrides. */
export class Declarations {
  /** `true` if the module refuses locks that are not declared. */
  readonly strict: boolean;
  readonly #instance: string | undefined;
  readonly #own: ReadonlySet<DeclaredLock>;
  readonly #overrides: LockOverrides;
  readonly #policies = new WeakMap<DeclaredLock, LockPolicy>();
  /** The claims on each fixed list of keys. The map's key is this list as JSON. */
  readonly #fixed = new Map<string, readonly Claim[]>();
  /** The last keys that key functions returned, each list with the declared lock. */
  readonly #computed = new Map<string, DeclaredLock>();
  readonly #told = new Set<string>();

  constructor(
    { instance, locks = {}, strict = false, overrides = {} }: DeclarationSettings,
    private readonly log: Log,
  ) {
    this.strict = strict;
    this.#instance = instance;
    this.#own = new Set(Object.values(locks).filter(({ policy }) => policy.instance === instance));
    this.#overrides = overrides;
  }

  /** The locks that are declared for this module instance. */
  get locks(): readonly DeclaredLock[] {
    return [...this.#own];
  }

  has(lock: DeclaredLock): boolean {
    return this.#own.has(lock);
  }

  /** The declared locks with the options that apply here, including the defaults of the module. */
  inForce(resolve: (policy: LockPolicy) => ResolvedLockOptions): LockDeclaration[] {
    return this.locks.map((lock) => {
      const { name, keys, team, about } = lock;
      const policy = this.policyOf(lock);
      const { oncePerTick = false, onBusy = oncePerTick ? 'skip' : 'throw' } = policy;
      const { ttl, renew, maxBlocked, minHold, maxHold, reentrant, onLost, release } = resolve(policy);
      return {
        ...{ name, keys, team, about, patterns: keyPatterns(lock).map(({ text }) => text) },
        ...{ mode: modeOf(policy), permits: policy.permits, ttl, renew, minHold, maxHold },
        maxBlocked: renew === 'thread' ? maxBlocked : undefined,
        ...{ reentrant, onLost, release },
        onBusy: typeof onBusy === 'function' ? 'function' : onBusy,
        oncePerTick,
        overridden: this.overriddenIn(lock),
      };
    });
  }

  /** The names of the options that the module overrides. */
  overriddenIn(lock: DeclaredLock): readonly string[] {
    const override = this.#own.has(lock) ? (this.#overrides[lock.name] ?? {}) : {};
    return Object.entries(override).flatMap(([name, value]) => (value === undefined ? [] : [name]));
  }

  /**
   * Returns the policy of a lock, with the overrides of the module.
   *
   * @throws TypeError for a lock of another module instance; RedlockError with the code LOCK_NOT_DECLARED for a lock
   * that a `strict` module does not have
   */
  policyOf(lock: DeclaredLock): LockPolicy {
    const known = this.#policies.get(lock);
    if (known) return known;
    const { instance } = lock.policy;
    if (instance !== this.#instance) throw this.#ofAnother(lock);
    const isOwn = this.#own.has(lock);
    if (this.strict && !isOwn) throw notDeclared([`${quoted([lock.name])} of another \`defineLocks\``]);
    const override = isOwn ? this.#overrides[lock.name] : undefined;
    const policy = override ? overridden(lock.policy, override) : lock.policy;
    this.#policies.set(lock, policy);
    return policy;
  }

  /**
   * Returns the options for an acquisition. An override of the module takes precedence over an option in `use`, and
   * both take precedence over the policy of the lock.
   *
   * @throws the errors of {@link policyOf}
   */
  optionsOf(lock: DeclaredLock, use: DeclaredUse): LockPolicy & { readonly lock: string } {
    const policy = this.policyOf(lock);
    const { retry = policy.retry, reentrant = policy.reentrant, onLost = policy.onLost } = use;
    const { oncePerTick = policy.oncePerTick } = use;
    const isOverridden = this.overriddenIn(lock).includes('onBusy');
    const onBusy = isOverridden ? policy.onBusy : (use.onBusy ?? policy.onBusy);
    const given = { retry, reentrant, onLost, oncePerTick, onBusy } as DeclaredUse;
    return { ...policy, ...given, lock: lock.name };
  }

  #ofAnother({ name, policy }: DeclaredLock): TypeError {
    const of = (instance: string | undefined): string =>
      instance === undefined ? 'the module without a name' : `the module '${instance}'`;
    const service =
      policy.instance === undefined ? 'the `LockService`' : `\`@InjectLockService('${policy.instance}')\``;
    return new TypeError(
      `${quoted([name])} is declared for ${of(policy.instance)}, but the call went to ${of(this.#instance)}, where the lock would ` +
        `exclude no other caller. Inject ${service}, or change the \`instance\` of the declaration`,
    );
  }

  /**
   * Checks the declared locks and all decorators at start-up.
   *
   * @throws RedlockError with the code LOCK_NOT_DECLARED, naming all decorators that `strict` does not allow; Error
   * when two policies have the same fixed key
   */
  check(sites: readonly LockSite[]): void {
    if (this.strict) this.#refuseUndeclared(sites);
    const declared = new Set(this.#own);
    for (const { what } of sites) if (what.kind === 'declared') declared.add(what.lock);
    const conflicts: string[] = [];
    const claim = (keys: readonly string[], claimed: Claim): void => {
      const others = this.#fixed.get(nameOf(keys)) ?? [];
      this.#fixed.set(nameOf(keys), [...others, claimed]);
      for (const other of others)
        if (isConflict(other, claimed)) conflicts.push(`${quoted(keys)}: ${other.who} and ${claimed.who}`);
    };
    for (const lock of declared) if (lock.keys) claim(lock.keys, this.#claimOf(lock));
    for (const { place, what } of sites) {
      if (what.kind === 'key' && what.keys)
        claim(what.keys, { who: place, mode: what.mode, lock: undefined });
    }
    if (conflicts.length > 0) {
      throw new Error(
        `Two policies for one key: ${conflicts.join('; ')}. Declare the lock once, and use it in both places with ` +
          '`@WithLock.of`. Only readers (`mode: "shared"`) and writers of one key may have different policies',
      );
    }
  }

  #refuseUndeclared(sites: readonly LockSite[]): void {
    const refused = sites.flatMap(({ place, what }) => {
      if (what.kind === 'key') return [`${place} (${this.#hint(what.keys)})`];
      if (what.kind === 'declared' && !this.#own.has(what.lock))
        return [`${place} (${quoted([what.lock.name])} of another \`defineLocks\`)`];
      return [];
    });
    if (refused.length > 0) throw notDeclared(refused);
  }

  /** Formats keys for a message, with the declared lock that has them. */
  #hint(keys: readonly string[] | undefined): string {
    if (!keys) return 'a key function';
    const having = this.locks.find((lock) => lock.keys && nameOf(lock.keys) === nameOf(keys));
    return having ? `${quoted(keys)}, which is the key of locks[${quoted([having.name])}]` : quoted(keys);
  }

  /** @throws RedlockError with the code LOCK_NOT_DECLARED */
  refuse(keys: readonly string[]): never {
    throw notDeclared([this.#hint(keys)]);
  }

  /**
   * Records the keys of a declared lock before its acquisition. Warns once for each pair of locks with the same key.
   */
  note(lock: DeclaredLock, keys: readonly string[]): void {
    if (lock.keys) return;
    const name = nameOf(keys);
    const claimed = this.#claimOf(lock);
    const last = this.#computed.get(name);
    const others = [...(this.#fixed.get(name) ?? []), ...(last ? [this.#claimOf(last)] : [])];
    for (const other of others) if (isConflict(other, claimed)) this.#warn(keys, other, claimed);
    if (last === lock) return;
    const oldest = this.#computed.size < MOST_KEYS ? undefined : this.#computed.keys().next().value;
    if (oldest !== undefined) this.#computed.delete(oldest);
    this.#computed.set(name, lock);
  }

  #warn(keys: readonly string[], ...claims: readonly [Claim, Claim]): void {
    const pair = claims.map(({ who }) => who).toSorted();
    if (this.#told.has(nameOf(pair))) return;
    this.#told.add(nameOf(pair));
    this.log.warn(
      `Two policies for one key: ${quoted(keys)} is locked as ${pair.join(' and as ')}. If both are the same ` +
        'lock, declare it once and use it in both places; if not, give one of them another key.',
    );
  }

  #claimOf(lock: DeclaredLock): Claim {
    return { who: `the declared lock ${quoted([lock.name])}`, mode: modeOf(lock.policy), lock };
  }
}

function isConflict(one: Claim, other: Claim): boolean {
  const areBothPlain = one.lock === undefined && other.lock === undefined;
  return !areBothPlain && one.lock !== other.lock && !isReaderAndWriter(one.mode, other.mode);
}

function nameOf(keys: readonly string[]): string {
  return JSON.stringify(keys);
}

function notDeclared(what: readonly string[]): RedlockError {
  const these = what.length === 1 ? `${what[0]} is` : 'these are';
  const list = what.length === 1 ? '' : `: ${what.join('; ')}`;
  return new RedlockError(
    'LOCK_NOT_DECLARED',
    `\`strict\` allows only declared locks, and ${these} not declared${list}. Declare each lock with \`defineLocks\`, in the ` +
      '`locks` of the module, and lock with `@WithLock.of(locks[name])` or `acquire(locks[name], ...)`',
  );
}
