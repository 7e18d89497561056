import { withPlace } from '../core/declared-lock.js';
import type { LockMode } from '../core/lock-mode.js';
import { modeOf } from '../core/lock-policy.js';
import { quoted } from '../core/printable.js';
import type { Redlock } from '../redlock/redlock.js';
import type { Declarations } from './declarations.js';
import type { LockSite } from './lock-site.js';
import type { ResolvedOptions } from './resolved-options.js';
import { noHookForCommit } from './transactions.js';

/** Checks the decorated methods and the declared locks of one module instance before it opens its nodes. */
export class StartChecks {
  /** @param tellsOfCommit - `true` if the application reports the end of transactions (`afterTransaction`) */
  constructor(
    private readonly redlock: Redlock,
    private readonly options: ResolvedOptions,
    private readonly declarations: Declarations,
    private readonly tellsOfCommit: boolean,
  ) {}

  /**
   * Announces the ttls and the fixed keys of decorated methods and of the declared locks.
   *
   * @throws RangeError naming the method or the lock, when a store cannot keep the ttl or the fixed keys, or
   * `restartGuard` is shorter than the ttl
   * @throws TypeError when a method uses `release: 'afterCommit'` and the module has no `afterTransaction`, or when the
   * defaults of the module have a `minHold` and the lock is shared
   * @throws the errors of {@link Declarations.policyOf}
   */
  run(sites: readonly LockSite[]): void {
    const { declarations } = this;
    const used = new Set(sites.map(({ what }) => what.kind === 'declared' && what.lock));
    for (const lock of declarations.locks) {
      const name = `The declared lock ${quoted([lock.name])}`;
      const policy = declarations.policyOf(lock);
      const { ttl, release } = policy;
      const { renew } = placed(name, () => this.options.of(policy));
      // Check `renew` and `release` only for locks in use: one file can declare the locks of several applications, and
      // some of them have no database.
      const isUsed = used.has(lock);
      this.#foresee(name, isUsed ? { ttl, renew, release } : { ttl });
      // A call of `LockService` may use the lock. The thread should be connected by then.
      if (renew === 'thread' && !isUsed) this.redlock.foreseeThread(false);
      this.#checkKeys(name, lock.keys, modeOf(policy));
    }
    for (const { place, ttl, renew, release, what } of sites) {
      if (what.kind !== 'declared') this.#checkKeys(place, what.keys, what.mode);
      else if (declarations.has(what.lock)) continue;
      // The defaults of the module do not apply to the renewal of a leader.
      const isLeader = what.kind === 'leader';
      this.#foresee(place, { ttl, renew: renew ?? (isLeader ? true : this.options.of({}).renew), release });
    }
  }

  #checkKeys(what: string, keys: readonly string[] | undefined, mode: LockMode): void {
    if (keys !== undefined) placed(what, () => this.redlock.checkKeys(keys, mode));
  }

  #foresee(
    what: string,
    { ttl, renew, release }: Partial<Pick<LockSite, 'ttl' | 'renew' | 'release'>>,
  ): void {
    if (release === 'afterCommit' && !this.tellsOfCommit) throw noHookForCommit(`${what}: `);
    if (renew === 'thread') placed(what, () => this.redlock.foreseeThread());
    if (ttl !== undefined) placed(what, () => this.redlock.foresee(ttl));
  }
}

/** The result of `task`, whose errors get the name of the lock or the method that they are about. */
function placed<T>(what: string, task: () => T): T {
  try {
    return task();
  } catch (error) {
    throw withPlace(what, error);
  }
}
