import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { Logger, type INestApplication } from '@nestjs/common';
import {
  LockLostError,
  LockService,
  LockUnavailableError,
  type RedlockModuleOptions,
} from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { Ids } from './worker-ids.js';

let server: RedisServer;
const apps: INestApplication[] = [];

beforeAll(async () => {
  server = await startRedis();
});
afterEach(() => Promise.all(apps.splice(0).map((app) => app.close())));
afterAll(() => server.stop());

async function worker(options: Partial<RedlockModuleOptions> = {}): Promise<INestApplication> {
  const app = await startApp({ providers: [Ids] }, { nodes: server.url, ...options });
  apps.push(app);
  return app;
}

const numberIn = (id: bigint): number => Number((id >> 12n) & 1_023n);
const momentIn = (id: bigint): number => Number(id >> 22n);

/** As many ids as fit into one millisecond, and a few milliseconds more. */
function idsOf(app: INestApplication, count: number): bigint[] {
  const ids = app.get(Ids);
  const made: bigint[] = [];
  while (made.length < count) {
    try {
      made.push(ids.next());
    } catch (error) {
      if (!String(error).includes('4,096')) throw error;
    }
  }
  return made;
}

test('workers have distinct numbers, and their ids are distinct and grow', async () => {
  const workers = await Promise.all([worker(), worker(), worker()]);
  const made = workers.map((app) => idsOf(app, 10_000));
  expect(made.map((ids) => numberIn(ids[0]!)).toSorted()).toEqual([0, 1, 2]);
  expect(new Set(made.flat()).size).toBe(30_000);
  for (const ids of made) expect(ids).toEqual(ids.toSorted((a, b) => (a < b ? -1 : 1)));
  expect(Math.abs(momentIn(made[0]![0]!) - Date.now())).toBeLessThan(60_000);
});

test('more than 4,096 ids in a millisecond are refused', async () => {
  const ids = (await worker()).get(Ids);
  const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 10);
  try {
    const made = Array.from({ length: 4_096 }, () => ids.next());
    expect(new Set(made).size).toBe(4_096);
    expect(() => ids.next()).toThrow('4,096 ids in this millisecond');
  } finally {
    clock.mockRestore();
  }
});

/** Whether the worker makes ids. */
function makes(app: INestApplication): boolean {
  try {
    return app.get(Ids).next() > 0n;
  } catch {
    return false;
  }
}

test('a worker that lost its number makes no ids, acquires another number, and resumes a second later', async () => {
  const log = jest.spyOn(Logger.prototype, 'log').mockImplementation(() => undefined);
  const errors = (): unknown[] => log.mock.calls.flat().filter((message) => message instanceof Error);
  const app = await worker();
  const ids = app.get(Ids);
  const before = ids.next();
  const locks = app.get(LockService);
  await locks.forceRelease('worker-id');
  const lost = Date.now();
  expect(() => ids.next()).toThrow(LockLostError);
  await until(() => makes(app));
  expect(ids.next()).toBeGreaterThan(before);
  expect(momentIn(ids.next()) - lost).toBeGreaterThanOrEqual(1_000);
  expect(errors()).toEqual([]);
  await app.close();
  // The number is free for the next worker, and this one asks for no other.
  expect(() => ids.next()).toThrow(LockLostError);
  expect(errors()).toEqual([]);
  log.mockRestore();
});

test('a worker waits longer than the default `timeout`, and retries after a refusal', async () => {
  const log = jest.spyOn(Logger.prototype, 'log').mockImplementation(() => undefined);
  const app = await worker({ defaults: { retry: { timeout: 300 } } });
  const locks = app.get(LockService);
  const refused = new LockUnavailableError(['worker-id'], 'refused');
  const acquire = jest.spyOn(locks, 'acquire').mockRejectedValueOnce(refused);
  await locks.forceRelease('worker-id');
  await until(() => log.mock.calls.flat().includes(refused));
  // Nobody has a number meanwhile, and none is to be had.
  acquire.mockRestore();
  const all = await locks.acquire('worker-id', { retry: false });
  await sleep(3_000);
  expect(makes(app)).toBe(false);
  await all.release();
  await until(() => makes(app));
  log.mockRestore();
});
