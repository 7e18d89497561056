/** Origin of a lock, for events, traces, metrics and tests, which must not count by its keys. */
export interface LockOrigin {
  /** The option `label`; else the key of a decorator, if it is a string, or `method`; `'other'` for a call of a service. */
  readonly label: string;
  /** The class and the method that has `@WithLock`. */
  readonly method?: string;
}
