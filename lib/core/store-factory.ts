import type { Store } from './ports.js';

/** What a module tells a store that is opened for it. */
export interface StoreTerms {
  /** Put before every key. */
  readonly keyPrefix: string;
  /** Something is weaker than it could be. Says the same thing once. */
  readonly warnOnce: (message: string) => void;
  /** The connection was lost, or an attempt to connect has failed; told again for every attempt. */
  readonly lost: () => void;
  /** The store can be asked. */
  readonly ready: () => void;
  /** Locks are to be looked at, and perhaps ended: nothing is made there, and nobody waits. */
  readonly looksOnly?: boolean;
}

/**
 * A store that is not opened yet, as `postgres(...)` of `nestjs-redlock/postgres` returns it: the `nodes` of a module, alone.
 */
export interface StoreFactory {
  /** Opens nothing yet: `LockStore.connect` does. */
  openStore(terms: StoreTerms): Store;
}
