import 'reflect-metadata';
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

/** Makes `count` ids. A millisecond allows 4,096 ids, so more ids take several milliseconds. */
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

test('workers get distinct worker numbers, and make distinct, increasing ids', async () => {
  const workers = await Promise.all([worker(), worker(), worker()]);
  const made = workers.map((app) => idsOf(app, 10_000));
  expect(made.map((ids) => numberIn(ids[0]!)).toSorted()).toEqual([0, 1, 2]);
  expect(new Set(made.flat()).size).toBe(30_000);
  for (const ids of made) expect(ids).toEqual(ids.toSorted((a, b) => (a < b ? -1 : 1)));
  expect(Math.abs(momentIn(made[0]![0]!) - Date.now())).toBeLessThan(60_000);
});

test('a worker refuses more than 4,096 ids in a millisecond', async () => {
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

/** Returns `true` if the worker makes ids. */
function makes(app: INestApplication): boolean {
  try {
    return app.get(Ids).next() > 0n;
  } catch {
    return false;
  }
}

test('a worker that lost the lock on its number makes no ids, and continues a second later with a new lock', async () => {
  const log = jest.spyOn(Logger.prototype, 'log').mockImplementation(() => undefined);
  const errors = (): unknown[] => log.mock.calls.flat().filter((message) => message instanceof Error);
  const app = await worker();
  const ids = app.get(Ids);
  const before = ids.next();
  const locks = app.get(LockService);
  const released = Date.now();
  await locks.forceRelease('worker-id');
  expect(() => ids.next()).toThrow(LockLostError);
  await until(() => makes(app));
  expect(ids.next()).toBeGreaterThan(before);
  // A timer of a second may fire a few milliseconds early.
  expect(momentIn(ids.next()) - released).toBeGreaterThan(990);
  expect(errors()).toEqual([]);
  await app.close();
  // The closed worker has given up its number, and asks for no other number.
  expect(() => ids.next()).toThrow(LockLostError);
  expect(errors()).toEqual([]);
  log.mockRestore();
});

test('a worker that was refused a number asks again, and waits for the number longer than `defaults.retry.timeout`', async () => {
  const log = jest.spyOn(Logger.prototype, 'log').mockImplementation(() => undefined);
  const app = await worker({ defaults: { retry: { timeout: 300 } } });
  const locks = app.get(LockService);
  const other = await startApp({}, { nodes: server.url });
  apps.push(other);
  const refused = new LockUnavailableError(['worker-id'], 'refused');
  const acquire = jest.spyOn(locks, 'acquire').mockRejectedValue(refused);
  await locks.forceRelease('worker-id');
  const logged = (): unknown[] => log.mock.calls.flat().filter((message) => message instanceof Error);
  await until(() => logged().length > 0);
  // An exclusive lock on the key leaves no number to the worker, which has to wait.
  const all = await other.get(LockService).acquire('worker-id');
  acquire.mockRestore();
  const looker = server.client();
  await until(async () => (await looker.exists('lock:{worker-id}:q')) === 1);
  const begun = performance.now();
  await until(() => performance.now() - begun > 1_000);
  expect(makes(app)).toBe(false);
  await all.release();
  await until(() => makes(app));
  expect(logged().every((error) => error === refused)).toBe(true);
  log.mockRestore();
});
