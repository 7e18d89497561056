import { inspect } from 'node:util';
import { StaleTokenError } from './stale-token.error.js';
import { checkedHolder, type TokenHolder } from './token-holder.js';

/** The answer of a store to a write. */
export interface FencedAnswer {
  /** `true` if the store has written, because it had seen no higher token. */
  readonly accepted: boolean;
  /** The highest token that the store has seen, if the store reports it. */
  readonly highest?: number | undefined;
}

/**
 * Writes with the lock's token, and throws when the store has seen a higher token. Use it for a store that a
 * `FencedRegister` cannot protect.
 *
 * The store must compare and write in one step, and keep the token with the written data: use a conditional update, a
 * script, or a request that contains the token. A comparison before the write protects nothing, because the writer can
 * be paused in between.
 *
 * @param lock - the lock under which the write is made
 * @param write - writes, unless the store has seen a token higher than its argument; the store must accept an equal
 * token
 * @throws StaleTokenError when the store refused
 * @throws TypeError or RangeError when `lock` has no usable keys or token; TypeError when the result of `write` has no
 * `accepted`
 *
 * @example
 * ```ts
 * import type { LockHandle } from 'nestjs-redlock';
 * import { fencedWrite } from 'nestjs-redlock/fencing';
 *
 * export async function pay(lock: LockHandle, url: string): Promise<void> {
 *   await fencedWrite(lock, async (token) => {
 *     const response = await fetch(url, { method: 'PUT', headers: { 'fencing-token': String(token) } });
 *     if (!response.ok && response.status !== 412) throw new Error(`${url} answered ${response.status}`);
 *     return { accepted: response.ok };
 *   });
 * }
 * ```
 */
export async function fencedWrite(
  lock: TokenHolder,
  write: (token: number) => Promise<FencedAnswer>,
): Promise<void> {
  const { keys, fencingToken } = checkedHolder(lock);
  const answer: unknown = await write(fencingToken);
  const { accepted, highest } = (answer ?? {}) as Partial<FencedAnswer>;
  if (typeof accepted !== 'boolean') {
    throw new TypeError(
      'Expected the answer of `write` to be `{ accepted: boolean }`, which says if it wrote, got ' +
        inspect(answer, { depth: 1 }),
    );
  }
  if (!accepted) throw new StaleTokenError(keys, fencingToken, highest);
}
