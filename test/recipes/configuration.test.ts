import 'reflect-metadata';
import { afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import { startRedis } from '../support/redis-server.js';

const variables = { ...process.env };
let url: string;

beforeAll(async () => {
  ({ url } = await startRedis());
});
// Each start reads the variables when the module is loaded, as it is in a process of its own.
beforeEach(() => void jest.resetModules());
afterEach(() => {
  process.env = { ...variables };
});

/** Starts an application with these variables, and resolves to what it locks with. */
async function start(
  env: Readonly<Record<string, string>>,
): Promise<{ ttl: number; close(): Promise<void> }> {
  process.env = { ...variables, ...env };
  const { NestFactory } = await import('@nestjs/core');
  const { LockService } = await import('nestjs-redlock');
  const { AppModule } = await import('./configuration.js');
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
  const lock = await app.get(LockService).acquire('k');
  const ttl = lock.remaining();
  await lock.release();
  return { ttl, close: () => app.close() };
}

test('locks with numbers and lists from the environment', async () => {
  const { ttl, close } = await start({ REDIS_URLS: url, LOCK_TTL: '30000' });
  expect(ttl).toBeGreaterThan(10_000);
  expect(ttl).toBeLessThanOrEqual(30_000);
  await close();
});

test('locks with the defaults when the environment is empty', async () => {
  const { ttl, close } = await start({ REDIS_URLS: url });
  expect(ttl).toBeGreaterThan(1_000);
  expect(ttl).toBeLessThanOrEqual(10_000);
  await close();
});

test.each([
  ['a variable that is missing', {}, 'REDIS_URLS'],
  ['one of several URLs that is none', { REDIS_URLS: 'redis://a:6379,b' }, 'REDIS_URLS'],
  ['a number that is none', { REDIS_URLS: 'redis://a:6379', LOCK_TTL: 'long' }, 'LOCK_TTL'],
])('does not start with %s, and names it', async (_name, env, name) => {
  await expect(start(env)).rejects.toThrow(name);
});
