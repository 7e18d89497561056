import type { Store } from './ports.js';

/** The settings that a module passes to a store when it opens the store. */
export interface StoreTerms {
  /** The prefix of every key. */
  readonly keyPrefix: string;
  /** Logs a warning about a weak setup. Logs the same message once. */
  readonly warnOnce: (message: string) => void;
  /** Reports a lost connection or a failed attempt to connect; called for every attempt. */
  readonly lost: () => void;
  /** Reports that the store accepts requests. */
  readonly ready: () => void;
  /** If `true`, the store only reads locks, and ends some on request: it creates nothing, and nobody waits. */
  readonly looksOnly?: boolean;
}

/**
 * A store before it is opened, as `postgres(...)` of `nestjs-redlock/postgres` returns it. A module takes it as its
 * `nodes`, alone.
 */
export interface StoreFactory {
  /** Opens no connection yet: `LockStore.connect` does. */
  openStore(terms: StoreTerms): Store;
}
