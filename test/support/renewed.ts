import type { Redis } from 'ioredis';
import { until } from './until.js';

/** Resolves when the time for which Redis keeps the key has grown, which of a lock that is held only a renewal does. */
export async function renewed(client: Redis, key: string): Promise<void> {
  let left = await client.pttl(key);
  await until(async () => {
    const before = left;
    left = await client.pttl(key);
    return before >= 0 && left > before;
  });
}
