import type { Store } from './ports.js';

/** The settings that a module passes to a store when it opens the store. */
export interface StoreTerms {
  /** The prefix of every key. */
  readonly keyPrefix: string;
  /** Logs a warning about a weak setup. Logs the same message only once. */
  readonly warnOnce: (message: string) => void;
  /** Reports a lost connection, and each failed attempt to connect. */
  readonly lost: () => void;
  /** Reports that the store accepts requests. */
  readonly ready: () => void;
  /**
   * If `true`, the store only reads locks and releases them by force, or extends locks that another store of this process
   * has acquired. The store then creates nothing on the server, and has no waiters.
   */
  readonly looksOnly?: boolean;
}

/**
 * A store before it is opened, as `postgres(...)` of `nestjs-redlock/postgres` returns it. It must be the only entry of
 * `nodes` of a module.
 */
export interface StoreFactory {
  /** Makes the store without connecting it; `LockStore.connect` opens the connection. */
  openStore(terms: StoreTerms): Store;
  /**
   * The function and the options with which another thread makes the same store.
   * @internal
   */
  readonly made?: MadeStore;
}

/** A store of this package that a thread can open itself, for `renew: 'thread'`. */
export interface MadeStore {
  readonly by: 'postgres' | 'mysql' | 'etcd' | 'zookeeper';
  readonly options: object;
}
