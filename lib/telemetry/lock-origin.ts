/**
 * Origin of a lock. Events, traces, metrics and tests use it in place of the keys, because there are too many different
 * keys.
 */
export interface LockOrigin {
  /**
   * The option `label`. Without it: for a decorator its key if the key is a string, otherwise `method`; for a call of
   * `LockService` it is `'other'`.
   */
  readonly label: string;
  /** The names of the class and of the method with `@WithLock`. */
  readonly method?: string;
}
