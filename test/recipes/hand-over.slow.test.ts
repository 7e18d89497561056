import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createLocks, type LockService } from '../../lib/standalone/index.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { type ChargeJob, perform, submit } from './hand-over.js';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

function locksOf(owner: string): LockService & AsyncDisposable {
  return createLocks({ nodes: redis.url, restartGuard: false, owner, ...PATIENT });
}

test('a worker goes on with the lock of the request, once, and releases it', async () => {
  await using api = locksOf('api');
  await using worker = locksOf('worker');
  const jobs: ChargeJob[] = [];
  await submit(api, '7', async (job) => jobs.push(job));
  await expect(submit(api, '7', async (job) => jobs.push(job))).rejects.toMatchObject({
    code: 'LOCK_HELD',
    owner: 'api (detached)',
  });
  expect((await api.inspect('order:7')).holders).toMatchObject([{ detached: true, owner: 'api (detached)' }]);
  const charged: [string, number][] = [];
  await perform(worker, jobs[0]!, async (order, token) => {
    expect((await api.inspect('order:7')).owner).toBe('worker');
    charged.push([order, token]);
  });
  expect(charged).toEqual([['7', expect.any(Number)]]);
  await expect(perform(worker, jobs[0]!, async () => undefined)).rejects.toMatchObject({
    code: 'LOCK_NOT_ATTACHED',
  });
  await submit(api, '7', async (job) => jobs.push(job));
});

test('the order is free again when the queue takes no job', async () => {
  await using api = locksOf('api');
  const full = submit(api, '8', () => Promise.reject(new Error('the queue is full')));
  await expect(full).rejects.toThrow('the queue is full');
  expect((await api.inspect('order:8')).held).toBe(false);
});
