import 'reflect-metadata';
import { beforeAll, beforeEach, expect, test } from '@jest/globals';
import { CACHE_MANAGER } from '@nestjs/cache-manager';
import type { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { bundled } from '../support/bundle.js';
import { Instance } from '../support/instance.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { Prices, Supplier } from './cache.js';

/** The ttl of the recipe, in milliseconds. */
const TTL = 5_000;
/** Milliseconds that a busy machine may take in addition to the ttl. */
const PATIENCE = 30_000;

let file: string;
let server: RedisServer;
let looker: Redis;
beforeAll(async () => {
  file = await bundled('test/fixtures/cache-app.ts');
  server = await startRedis();
  looker = server.client();
});
beforeEach(() => looker.flushall());

/** Starts `count` instances. Each asks for the same price ten times at once. A computation takes `work` ms. */
async function ask(count: number, work: number): Promise<Instance[]> {
  const env = { REDIS_URL: server.url, WORK: String(work) };
  const instances = Array.from({ length: count }, () => new Instance(file, env));
  await Promise.all(instances.map((instance) => instance.told('ready')));
  for (const instance of instances) instance.signal('SIGUSR2');
  return instances;
}

const all = (instances: readonly Instance[], event: string): string[] =>
  instances.flatMap(({ lines }) => lines.filter((line) => line.startsWith(event)));

test('one of four instances computes a value, and all requests get it', async () => {
  const instances = await ask(4, 300);
  await until(() => all(instances, 'values').length === 4);
  expect(all(instances, 'computing')).toHaveLength(1);
  expect(new Set(all(instances, 'values')).size).toBe(1);
});

test('when the instance that computes a value is killed, another instance computes the value after the ttl', async () => {
  // The work takes long, so that the kill comes before its end, also on a busy machine.
  const instances = await ask(4, 4_000);
  await until(() => all(instances, 'computing').length > 0);
  const [first, ...others] = instances.toSorted((a, b) => b.lines.length - a.lines.length);
  await first!.kill();
  expect(all(instances, 'computed')).toEqual([]);
  const killed = performance.now();
  await until(() => all(others, 'computing').length > 0, 60_000);
  expect(performance.now() - killed).toBeLessThan(TTL + PATIENCE);
  await until(() => all(others, 'values').length === 3);
  expect(all(others, 'computing')).toHaveLength(1);
  expect(new Set(all(others, 'values')).size).toBe(1);
});

test('a waiting instance gets the stored value, even if the cache is slow', async () => {
  const stored = new Map<string, unknown>();
  const slow = {
    get: async (key: string) => stored.get(key),
    set: async (key: string, value: unknown) => {
      await sleep(300);
      stored.set(key, value);
    },
  };
  let computations = 0;
  const supplier: Supplier = { priceOf: async () => ++computations };
  const apps = await Promise.all(
    [1, 2, 3].map(() =>
      startApp(
        {
          providers: [
            Prices,
            { provide: CACHE_MANAGER, useValue: slow },
            { provide: Supplier, useValue: supplier },
          ],
        },
        { nodes: server.url },
      ),
    ),
  );
  const values = await Promise.all(apps.map((app) => app.get(Prices).of('book')));
  expect(values).toEqual([1, 1, 1]);
  await Promise.all(apps.map((app) => app.close()));
});
