import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LockService, RedlockModule, type RedlockModuleOptions } from '../../lib/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { DURABLE, type RedisServer, startRedis, startRedisNodes } from '../support/redis-server.js';
import { startSentinel } from '../support/sentinel.js';
import { until } from '../support/until.js';

const log = new LogLines();
beforeEach(() => {
  log.lines.length = 0;
});

async function start(options: RedlockModuleOptions): Promise<INestApplication> {
  const module = await Test.createTestingModule({ imports: [RedlockModule.forRoot(options)] })
    .setLogger(log)
    .compile();
  const app = module.createNestApplication();
  cleanUpAfterTests(() => app.close());
  return app.init();
}

/** The log lines about one server, without the duration of the fault. */
function linesOn({ port }: RedisServer): string[] {
  return log.lines
    .filter(({ text }) => text.includes(`:${port}`))
    .map(({ level, text }) => `${level} ${text.replace(/after \d+ ms/, 'after a while')}`);
}

describe('an idle application with three nodes', () => {
  let servers: RedisServer[];
  let app: INestApplication;

  beforeAll(async () => {
    servers = await startRedisNodes(3, DURABLE);
    app = await start({ nodes: servers.map(({ url }) => url), restartGuard: false });
    await until(async () =>
      (await app.get(LockService).checkNodes()).nodes.every(({ state }) => state === 'voting'),
    );
  });
  afterAll(async () => {
    await app.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  test('an idle application logs each loss and return of a node once, and a lost quorum as an error', async () => {
    const [a, b] = servers as [RedisServer, RedisServer];
    await a.kill();
    await until(() => linesOn(a).length > 0);
    await b.kill();
    await until(() => linesOn(b).length > 0);
    await b.start();
    await until(() => linesOn(b).length > 1);
    const gone = (server: RedisServer): string => `Lost the connection to Redis at 127.0.0.1:${server.port}`;
    expect(linesOn(a)).toEqual([`warn ${gone(a)}: 2 of 3 nodes are connected, 2 are needed`]);
    expect(linesOn(b)).toEqual([
      `error ${gone(b)}: 1 of 3 nodes are connected, 2 are needed. Nothing can be locked until more of them are connected again.`,
      `log Redis at 127.0.0.1:${b.port} is connected again, after a while: 2 of 3 nodes are connected, 2 are needed`,
    ]);
  });
});

test('a connection that is back at once is a line at level debug, and no error', async () => {
  const server = await startRedis();
  const app = await start({ nodes: server.url });
  const looker = server.client();
  const votes = async (): Promise<boolean> =>
    (await app.get(LockService).checkNodes()).nodes.every(({ state }) => state === 'voting');
  const again = (): string | undefined =>
    log.lines.find(({ text }) => text.includes(`:${server.port} is connected again`))?.text;
  // A busy machine may need longer than a second to connect again. Then there is an error, and rightly so.
  for (let away = Infinity; away >= 1_000;) {
    // The application logs nothing of a connection that it has not used yet.
    await until(votes);
    log.lines.length = 0;
    await looker.client('KILL', 'SKIPME', 'yes');
    await until(() => again() !== undefined);
    away = Number(/after (\d+) ms/.exec(again() ?? '')?.[1]);
  }
  expect(linesOn(server).map((line) => line.split(' ')[0])).not.toContain('error');
  expect(linesOn(server)).toContainEqual(
    expect.stringMatching(/^debug Redis at .* is connected again, after a while/),
  );
  await app.close();
  await server.stop();
});

test('three masters with the same name at three Sentinels are three nodes', async () => {
  const servers = await startRedisNodes(3, DURABLE);
  const ports = await Promise.all(servers.map((server) => startSentinel(server, 'mymaster')));
  const nodes = ports.map((port) => ({ name: 'mymaster', sentinels: [{ host: '127.0.0.1', port }] }));
  const app = await start({ nodes, restartGuard: false });
  const statuses = async () => (await app.get(LockService).checkNodes()).nodes;
  await until(async () => (await statuses()).every(({ state }) => state === 'voting'));
  const names = ports.map((port) => `sentinel:mymaster via 127.0.0.1:${port}`);
  expect((await statuses()).map(({ node }) => node).toSorted()).toEqual(names.toSorted());
  await servers[0]!.kill();
  await until(() => log.lines.some(({ text }) => text.includes('Lost')));
  expect(log.lines.filter(({ text }) => text.includes('Lost'))).toEqual([
    {
      level: 'warn',
      text: `Lost the connection to Redis at ${names[0]}: 2 of 3 nodes are connected, 2 are needed`,
    },
  ]);
  await app.close();
  await Promise.all(servers.map((server) => server.stop()));
});

test('a node that was down at start-up is logged once when it connects later, and shutdown logs nothing', async () => {
  const redis = await startRedis(DURABLE);
  await redis.kill();
  const app = await start({ nodes: redis.url });
  await redis.start();
  await until(() => linesOn(redis).some((line) => line.includes('connected again')));
  const locks = app.get(LockService);
  await until(async () => (await locks.checkNodes()).available);
  await locks.withLock('a', { retry: { timeout: 60_000 } }, () => undefined);
  expect(linesOn(redis).filter((line) => /Lost|connected/.test(line))).toEqual([
    `log Redis at 127.0.0.1:${redis.port} is connected again, after a while: 1 of 1 nodes are connected, 1 are needed`,
  ]);
  log.lines.length = 0;
  await app.close();
  expect(log.lines).toEqual([]);
  await redis.stop();
});

test('a lost lock is logged in one line, and a release is not logged', async () => {
  const locks = new TestLocks();
  const module = await Test.createTestingModule({ imports: [RedlockTestingModule.forRoot({ locks })] })
    .setLogger(log)
    .compile();
  const service = module.get(LockService);
  await (await service.acquire('a')).release();
  expect(log.lines).toEqual([]);
  const lock = await service.acquire('a');
  locks.lose('a');
  expect(lock.isHeld()).toBe(false);
  expect(log.lines).toEqual([
    { level: 'warn', text: expect.stringContaining('The lock on "a" is lost: fewer than a quorum of nodes') },
  ]);
  await module.close();
});
