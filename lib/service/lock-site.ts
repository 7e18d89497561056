import type { DeclaredLock } from '../core/declared-lock.js';
import type { LockMode } from '../core/lock-mode.js';
import type { LockOptions } from '../core/lock-options.js';

/** A decorator that makes a method run under a lock. */
export interface LockSite {
  /** The names of the decorator, the class and the method, for messages. */
  readonly place: string;
  readonly method: string | symbol;
  readonly instance: string | undefined;
  /** The ttl, if the decorator has one. */
  readonly ttl: number | undefined;
  /** The option `renew` of the decorator. */
  readonly renew?: LockOptions['renew'];
  /** The option `reentrant` of the decorator, or of its declared lock. */
  readonly reentrant?: boolean | undefined;
  /** The option `release` of the decorator. */
  readonly release?: LockOptions['release'];
  readonly what: LockedThing;
}

/** The target of a decorator: a declared lock, a key, or the leadership under a name. */
export type LockedThing =
  | { readonly kind: 'declared'; readonly lock: DeclaredLock }
  | {
      readonly kind: 'key';
      readonly mode: LockMode;
      /** The fixed keys; `undefined` if a function computes the keys. */
      readonly keys: readonly string[] | undefined;
    }
  | { readonly kind: 'leader'; readonly mode: 'exclusive'; readonly keys: readonly [string] };
