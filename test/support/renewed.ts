import type { Redis } from 'ioredis';
import { until } from './until.js';

/** Resolves when the remaining time of the key has grown. While a lock is held, only a renewal makes it grow. */
export async function renewed(client: Redis, key: string): Promise<void> {
  let left = await client.pttl(key);
  await until(async () => {
    const before = left;
    left = await client.pttl(key);
    return before >= 0 && left > before;
  });
}
