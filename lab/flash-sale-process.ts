import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { LockService, RedlockModule } from 'nestjs-redlock';

// A shop process for scenario 12. Each of its many customers wants one item, and the stock is too small for all of
// them.

const { SALE_REDIS = '', SALE_KEY = '', SALE_WAY = '', SALE_BUYERS = '' } = process.env;

/** Checks the stock and takes an item in one step, because Redis runs one script at a time. */
const TAKE_ONE = `
  if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end
  redis.call('DECR', KEYS[1])
  return 1
`;

// A node may take a fifth of the ttl to answer, the longest time that the library allows, so that a busy machine does
// not change the outcome.
@Module({
  imports: [RedlockModule.forRoot({ nodes: SALE_REDIS, keyPrefix: `${SALE_KEY}:lock:`, nodeTimeout: 1_000 })],
})
class ShopModule {}

const app = await NestFactory.createApplicationContext(ShopModule, {
  logger: ['error'],
  abortOnError: false,
});
const locks = app.get(LockService);
const redis = new Redis(SALE_REDIS);

/** Correct only if no other customer buys between the read and the write. */
async function readThenWrite(): Promise<boolean> {
  const stock = Number(await redis.get(SALE_KEY));
  if (stock <= 0) return false;
  await redis.set(SALE_KEY, stock - 1);
  return true;
}

const ways: Record<string, () => Promise<boolean>> = {
  unguarded: readThenWrite,
  lock: () =>
    locks.withLock('stock', { ttl: 5_000, retry: { timeout: 60_000, delay: 20, jitter: 20 } }, readThenWrite),
  script: async () => (await redis.eval(TAKE_ONE, 1, SALE_KEY)) === 1,
};

process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
process.once('message', async () => {
  const results = await Promise.all(Array.from({ length: Number(SALE_BUYERS) }, () => ways[SALE_WAY]?.()));
  process.send?.({ kind: 'sold', count: results.filter(Boolean).length });
});
await redis.ping();
process.send?.({ kind: 'open' });
