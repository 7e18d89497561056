import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { createLocks } from '../../lib/standalone/index.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { pause } from './pause.js';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

test('a paused job is refused with the reason, until the pause ends', async () => {
  const log = jest.spyOn(console, 'log').mockImplementation(() => undefined);
  const nodes = { nodes: redis.url, restartGuard: false as const };
  const end = new AbortController();
  const paused = pause('reports', { ...nodes, owner: 'paused for migration 42' }, end.signal);
  await until(async () => log.mock.calls.flat().includes('reports is paused'));
  await using locks = createLocks(nodes);
  await expect(locks.acquire('reports', { retry: false })).rejects.toMatchObject({
    code: 'LOCK_HELD',
    owner: 'paused for migration 42',
  });
  end.abort();
  await paused;
  await expect(locks.tryAcquire('reports')).resolves.not.toBeNull();
  log.mockRestore();
});
