import { RedlockError } from '../core/errors.js';
import { quoted } from '../core/printable.js';

/**
 * The protected resource has seen a higher fencing token: another holder has acquired the lock after this one, and this
 * one's write was refused. Do not retry with the same lock: the data that it has read may be out of date, too.
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
    /** The keys of the lock for which a higher token has been seen. */
    readonly keys: readonly string[],
    /** The token that was refused. */
    readonly token: number,
    /** The highest token that was seen; `undefined` where the store does not say. */
    readonly highest: number | undefined,
  ) {
    super(
      'TOKEN_STALE',
      `Nothing was written for ${quoted(keys)}: its fencing token ${token} is lower than ` +
        `${highest ?? 'one'} that was seen before, so another holder has come since. ` +
        'Stop, acquire the lock again and start from what is stored now.',
    );
  }
}
