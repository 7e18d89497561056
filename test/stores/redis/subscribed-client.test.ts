import { beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { LockService } from '../../../lib/index.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { LogLines } from '../../support/log-lines.js';
import { startApp } from '../../support/nest-app.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});

const REMEDY =
  'the client in `nodes` is subscribed to channels, so it can send no other commands; give a client of its own';

test('a client of ioredis that is subscribed gets the remedy in the log and in the error', async () => {
  const client = new Redis(server.url);
  cleanUpAfterTests(async () => void client.disconnect());
  await client.subscribe('news');
  const logger = new LogLines();
  const app = await startApp({}, { nodes: client }, { logger });
  expect(logger.of('warn').join()).toContain(REMEDY);
  await expect(app.get(LockService).acquire('key', { retry: false })).rejects.toThrow(REMEDY);
  await client.unsubscribe('news');
  await expect(app.get(LockService).acquire('key')).resolves.toBeDefined();
});

test('a client of node-redis that subscribes later gets the remedy in the error', async () => {
  const client = createClient({ url: server.url, RESP: 2 });
  await client.connect();
  cleanUpAfterTests(async () => client.destroy());
  const app = await startApp({}, { nodes: client });
  await client.subscribe('news', () => undefined);
  await expect(app.get(LockService).acquire('key 2', { retry: false })).rejects.toThrow(REMEDY);
});
