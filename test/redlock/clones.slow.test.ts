import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { LockService, RedlockModule } from '../../lib/index.js';
import { bundled } from '../support/bundle.js';
import { Instance } from '../support/instance.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

// Processes that were restored from one snapshot have the same random bytes.

let file: string;
let redis: RedisServer;
let looker: Redis;
let locks: LockService;
beforeAll(async () => {
  [file, redis] = await Promise.all([bundled('test/fixtures/cloned-process.ts'), startRedis()]);
  looker = redis.client();
  const app = await startPlainApp({
    imports: [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url, restartGuard: false })],
  });
  locks = app.get(LockService);
});
afterAll(() => redis.stop());
beforeEach(async () => void (await looker.flushall()));

async function clone(task: 'hold' | 'wait'): Promise<Instance> {
  const instance = new Instance(file, { REDIS_URL: redis.url, TASK: task });
  await until(() => instance.lines.length > 0);
  return instance;
}

test('of two clones of a process, one gets the lock', async () => {
  const first = await clone('hold');
  await first.told('held');
  const second = await clone('hold');
  await until(() => second.lines.length === 2);
  // Both have the same random name, so they are clones.
  expect(second.lines).toEqual([first.lines[0], 'LOCK_HELD']);
});

test('two clones of a process wait beside each other, each with its own place in the queue', async () => {
  const held = await locks.acquire('key', { ttl: 300_000 });
  const clones = [await clone('wait'), await clone('wait')];
  await until(async () => (await locks.waiting(['key'])).get('key')?.length === 2, 60_000);
  const waiting = (await locks.waiting(['key'])).get('key') ?? [];
  expect(new Set(waiting.map(({ process }) => process)).size).toBe(1);
  await held.release();
  await until(() => clones.some(({ lines }) => lines.includes('held')));
  expect((await locks.waiting(['key'])).get('key')).toHaveLength(1);
});
