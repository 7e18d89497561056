import { LockHeldError, RedlockError, titleOf } from '../core/errors.js';
import { canHoldTogether, joins, nameOfKind } from '../core/lock-mode.js';
import { quoted } from '../core/printable.js';
import type { LockInspector } from '../redlock/inspect/lock-inspector.js';
import type { LockCall } from './lock-call.js';
import { currentScope, isInScope, type LockScope, type RunnableLock } from './lock-scope.js';
import type { Transactions } from './transactions.js';

/**
 * The locks under which a call is made: the locks of the scopes around it, and the locks that its transaction keeps. A
 * nested call may join one of them (S18), may not ask for another mode of it, and must not wait for itself in silence.
 */
export class SurroundingLocks {
  /** @param source - the runtime whose locks count: two module instances can have different locks of the same key */
  constructor(
    private readonly source: object,
    private readonly inspection: LockInspector,
    private readonly transactions: Transactions | undefined,
  ) {}

  /** `false` if the running call is surely made under no lock. Most calls are not, and need no search. */
  get mayBe(): boolean {
    return isInScope() || this.transactions?.tellEnds === true;
  }

  /**
   * The innermost scope of the running call for which `fits` is true. Without one: a scope for which `fits` is true and
   * whose lock the call's transaction keeps.
   */
  find(fits: (scope: LockScope) => boolean): LockScope | undefined {
    return (
      currentScope((scope) => scope.source === this.source && fits(scope)) ?? this.transactions?.find(fits)
    );
  }

  /** The innermost lock around the running call; with `key`, the innermost lock of that key. */
  lock(key?: string): RunnableLock | undefined {
    return this.find(({ lock }) => key === undefined || lock.keys.includes(key))?.lock;
  }

  /** A held lock around the running call that excludes the lock which the call asks for. */
  inTheWay({ keys, options: { kind } }: LockCall): RunnableLock | undefined {
    return this.find(
      ({ lock }) =>
        !canHoldTogether(lock.mode, kind.mode) &&
        keys.some((key) => lock.keys.includes(key)) &&
        lock.isHeld(),
    )?.lock;
  }

  /**
   * Finds the outer call whose lock a `reentrant` call can join (S18): a lock of all the keys, in a mode that includes
   * the requested mode. `undefined` for any other call.
   *
   * @throws RedlockError with the code LOCK_UPGRADE for an exclusive lock under a shared lock of the same key
   * @throws LockLostError when the lock to join is lost
   */
  outerOf({ keys, options }: LockCall): LockScope | undefined {
    if (options.kind.mode !== 'shared') this.#refuseUpgrade(keys, options);
    if (!options.reentrant) return undefined;
    const outer = this.find(
      ({ covers, lock }) =>
        covers && joins(options.kind.mode, lock.mode) && keys.every((key) => lock.keys.includes(key)),
    );
    outer?.lock.assertHeld();
    return outer;
  }

  /**
   * Refuses an exclusive lock for a call under a shared lock of the same key: the call would wait for itself. Two calls
   * that both hold a shared lock of the key would wait for each other.
   *
   * @throws RedlockError with the code LOCK_UPGRADE
   */
  #refuseUpgrade(keys: readonly string[], { kind, lock: name }: LockCall['options']): void {
    const outer = this.find(
      ({ lock }) => lock.mode === 'shared' && keys.some((key) => lock.keys.includes(key)) && lock.isHeld(),
    );
    if (!outer) return;
    const shared = outer.lock.keys.filter((key) => keys.includes(key));
    throw new RedlockError(
      'LOCK_UPGRADE',
      `${titleOf(keys, name)} is not locked: the calling code asks for ${nameOfKind(kind)}, but already holds ` +
        `${quoted(shared)} in the mode 'shared', so the call would wait for itself. Lock with \`mode: 'exclusive'\` from the ` +
        'beginning if the call may write; or end the shared lock first, and read again under the new lock.',
    );
  }

  /**
   * Rejects with the error of a refused call; if the call waited for itself, with a copy that says so.
   */
  async explain({ keys, options: { kind } }: LockCall, error: unknown): Promise<never> {
    if (!(error instanceof LockHeldError) || error.ranTick !== undefined) throw error;
    const { owner, retryAfter, limit, holders, permitsSeen } = error;
    for (const key of keys) {
      if (!(await this.#isInTheWay(key, kind, error))) continue;
      const details = { limit, holders, permitsSeen, kind, heldByCaller: true };
      throw new LockHeldError(keys, owner, retryAfter, details);
    }
    throw error;
  }

  /**
   * `true` if the running call waits for itself: a lock that it already holds blocks its request for the key, or blocks
   * waiters in front of that request.
   */
  async #isInTheWay(
    key: string,
    kind: LockCall['options']['kind'],
    { keys, holders }: LockHeldError,
  ): Promise<boolean> {
    const own = this.lock(key);
    if (!own?.isHeld()) return false;
    if (kind.mode !== 'permits' || own.mode !== 'permits') return true;
    if (holders.some(({ id }) => id === own.id)) return true;
    const { permits } = kind;
    // The permit that the running call holds excludes this request only if its slot is below the requested number of
    // permits.
    if (keys.length === 1) return (own.slots?.[own.keys.indexOf(key)] ?? 0) < permits;
    // The error names ten holders at most, perhaps of another key, so read all holders of this key.
    const info = await this.inspection.inspect(key).catch(() => undefined);
    const inTheWay = (info?.holders ?? []).filter(({ slot = 0 }) => slot < permits);
    return inTheWay.length >= permits && inTheWay.some(({ id }) => id === own.id);
  }
}

/**
 * Hands over the lock of a nested call that could not join the lock of the outer call, because another nested call had
 * joined it. The nested call fails when the outer lock was lost during its wait, because it may use data that the outer
 * call has already read (S18).
 */
export async function beside(
  outer: RunnableLock,
  { options }: LockCall,
  acquired: Promise<RunnableLock>,
): Promise<RunnableLock> {
  const lock = await acquired;
  // The outer lock seems to be held. If the acquired lock and the outer lock exclude each other, the outer lock has
  // ended, and the loss was not noticed yet.
  if (!canHoldTogether(outer.mode, options.kind.mode))
    outer.lose('a nested call could acquire its keys, so the lock had already ended');
  if (!outer.loss) return lock;
  await lock.release();
  throw outer.loss;
}
