import { RedlockError } from '../core/errors.js';
import { quoted } from '../core/printable.js';

/**
 * The protected resource has seen a higher fencing token: another caller has acquired the lock after this holder, so
 * the resource refused this holder's write. Do not retry with the same lock: the data that was read under it may be out
 * of date, too.
 *
 * @example
 * ```ts
 * import { RedlockError } from 'nestjs-redlock';
 * import { StaleTokenError } from 'nestjs-redlock/fencing';
 *
 * export function explain(error: unknown): string {
 *   if (error instanceof StaleTokenError) return `${error.token} came after ${error.highest}`;
 *   return error instanceof RedlockError ? error.code : 'something else';
 * }
 * ```
 */
export class StaleTokenError extends RedlockError {
  override readonly name = 'StaleTokenError';

  constructor(
    /** The keys of the refused write: from a `FencedRegister` only those with a higher token, else all keys of the lock. */
    readonly keys: readonly string[],
    /** The refused token. */
    readonly token: number,
    /** The highest token that was seen; `undefined` when the store does not report it. */
    readonly highest: number | undefined,
  ) {
    super(
      'TOKEN_STALE',
      `Nothing was written for ${quoted(keys)}: the fencing token ${token} of this lock is lower than ` +
        `${highest === undefined ? 'a token' : `the token ${highest}`} that was seen before, ` +
        'so another caller has acquired the lock since. ' +
        'Stop, acquire the lock again, and start from the data that is stored now.',
    );
  }
}
