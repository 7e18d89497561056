import 'reflect-metadata';
import { afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import { startRedis } from '../support/redis-server.js';

const variables = { ...process.env };
let url: string;

beforeAll(async () => {
  ({ url } = await startRedis());
});
// The module reads the variables when it is loaded, so each test loads it again.
beforeEach(() => void jest.resetModules());
afterEach(() => {
  process.env = { ...variables };
});

/** Starts an application with these variables; resolves to the ttl of its locks. */
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

test('the application takes the nodes and the ttl of its locks from the environment', async () => {
  const { ttl, close } = await start({ REDIS_URLS: url, LOCK_TTL: '30000' });
  expect(ttl).toBeGreaterThan(10_000);
  expect(ttl).toBeLessThanOrEqual(30_000);
  await close();
});

test('the application uses the default ttl if the environment has no LOCK_TTL', async () => {
  const { ttl, close } = await start({ REDIS_URLS: url });
  expect(ttl).toBeGreaterThan(1_000);
  expect(ttl).toBeLessThanOrEqual(10_000);
  await close();
});

test.each([
  ['a missing variable', {}, 'REDIS_URLS'],
  ['an invalid URL among several', { REDIS_URLS: 'redis://a:6379,b' }, 'REDIS_URLS'],
  ['an invalid number', { REDIS_URLS: 'redis://a:6379', LOCK_TTL: 'long' }, 'LOCK_TTL'],
])('the application refuses to start with %s, and the error names the variable', async (_name, env, name) => {
  await expect(start(env)).rejects.toThrow(name);
});
