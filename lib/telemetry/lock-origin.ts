import { quoted } from '../core/printable.js';

/**
 * Origin of a lock. Events, traces, metrics and tests use it in place of the keys, because there are too many different
 * keys.
 */
export interface LockOrigin {
  /**
   * The option `label`. Without this option, the label of a decorator is its key if the key is a string, and otherwise
   * `method`; the label of a call of `LockService` is `'other'`.
   */
  readonly label: string;
  /** The names of the class and of the method with `@WithLock`. */
  readonly method?: string;
}

/** Formats the origin as the caller, for messages. */
export function callerOf({ method, label }: LockOrigin): string {
  return method ?? `LockService (label ${quoted([label])})`;
}
