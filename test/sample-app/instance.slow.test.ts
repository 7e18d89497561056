import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { LINGER_MS } from '../../lib/core/store-times.js';
import { createScratchSchema } from '../../sample-app/demo/scratch-schema.js';
import { Instance } from '../../sample-app/demo/instance.js';
import { ServerProcess } from '../../sample-app/demo/server-process.js';
import { StopList } from '../../sample-app/demo/stop-list.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { MAIN, START_TIMEOUT, startServices, stopList } from './services.js';

const task = { name: 'resize-photos', items: 2, msPerItem: 1, failures: 0 };

/** An address without a server. Neither tests nor other programs listen on this low port. */
const NO_SERVER = '127.0.0.1:1';

const stops = stopList();
let databaseUrl: string;
let redisUrl: string;

beforeAll(async () => {
  ({ databaseUrl, redisUrl } = await startServices());
}, START_TIMEOUT);

describe('an instance, over HTTP,', () => {
  const own = new StopList();
  let instance: Instance;

  beforeAll(async () => {
    await stops.add(() => own.stopAll());
    const schema = await createScratchSchema(databaseUrl, 'over_http', own);
    instance = await Instance.start(
      MAIN,
      { INSTANCE: 'one', DATABASE_URL: schema, REDIS_URLS: redisUrl, KEY_PREFIX: 'over_http' },
      own,
    );
  }, START_TIMEOUT);

  afterAll(() => own.stopAll());

  const post = (body: string): Promise<Response> =>
    fetch(`${instance.url}/tasks`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });

  test('an instance answers 202 with the ids of the stored tasks, and reports their state later', async () => {
    const response = await post(JSON.stringify({ tasks: [task, task] }));

    expect(response.status).toBe(202);
    const { ids } = (await response.json()) as { ids: string[] };
    expect(new Set(ids).size).toBe(2);
    const found = await fetch(`${instance.url}/tasks/${ids[0]}`);
    expect(await found.json()).toMatchObject({ id: ids[0], name: task.name });
  });

  test.each([
    ['malformed JSON', '{"tasks": [', 400, /JSON/],
    ['an unknown field', JSON.stringify({ tasks: [{ ...task, colour: 'red' }] }), 400, /tasks\.0: .*colour/],
    ['a wrong type', JSON.stringify({ tasks: [task, { ...task, items: '2' }] }), 400, /tasks\.1\.items: /],
    ['a missing field', JSON.stringify({ tasks: [{ name: 'a', items: 1 }] }), 400, /tasks\.0\.msPerItem: /],
    [
      'text that cannot be stored',
      JSON.stringify({ tasks: [{ ...task, name: 'a\0' }] }),
      400,
      /tasks\.0\.name: /,
    ],
    ['too many tasks', JSON.stringify({ tasks: Array(501).fill(task) }), 400, /tasks: at most 500 tasks/],
    [
      'a body that is too large',
      JSON.stringify({ tasks: [{ ...task, name: 'x'.repeat(2 ** 21) }] }),
      413,
      /1048576/,
    ],
  ])('an instance refuses %s, says why and stores nothing', async (_what, body, status, message) => {
    const before = await totalOf(instance);

    const response = await post(body);

    expect(response.status).toBe(status);
    expect(String(((await response.json()) as { message: unknown }).message)).toMatch(message);
    expect(await totalOf(instance)).toBe(before);
  });

  test.each([
    ['no-uuid', 400],
    ['7f0a3a0e-0000-4000-8000-000000000000', 404],
  ])('an instance answers GET /tasks/%s with %i', async (id, status) => {
    expect((await fetch(`${instance.url}/tasks/${id}`)).status).toBe(status);
  });
});

describe('an instance', () => {
  test.each([
    [
      'when it has no configuration',
      () => ({ DATABASE_URL: '', REDIS_URLS: '' }),
      /DATABASE_URL: must be like[^]*REDIS_URLS: must be like/,
    ],
    [
      'when PostgreSQL cannot be reached',
      () => ({
        DATABASE_URL: `postgres://me:secret@${NO_SERVER}/x`,
        REDIS_URLS: redisUrl,
      }),
      /^Cannot use PostgreSQL at postgres:\/\/me:\*\*\*@.*ECONNREFUSED.*Start it, or set DATABASE_URL\.$/,
    ],
    [
      'when the PostgreSQL of the locks cannot be reached',
      () => ({
        DATABASE_URL: databaseUrl,
        REDIS_URLS: redisUrl,
        LOCK_STORE: 'postgres',
        LOCK_DATABASE_URL: `postgres://me:secret@${NO_SERVER}/locks`,
      }),
      /^Cannot use PostgreSQL at postgres:\/\/me:\*\*\*@.*\/locks .*Start it, or set LOCK_DATABASE_URL\.$/,
    ],
    [
      'when Redis cannot be reached',
      () => ({ DATABASE_URL: databaseUrl, REDIS_URLS: `redis://${NO_SERVER}` }),
      /^Cannot reach Redis at redis:.*ECONNREFUSED.*Start it, or set REDIS_URLS\.$/,
    ],
  ])(
    'an instance exits with code 1 and an explanation %s',
    async (_when, environment, message) => {
      const server = new ServerProcess('instance', process.execPath, [MAIN], {
        env: { ...process.env, ...environment(), PORT: '0' },
      });
      await stops.add(() => server.stop());

      await server.ended;

      expect(server.exitCode).toBe(1);
      expect(server.output.trim()).toMatch(message);
    },
    START_TIMEOUT,
  );
});

test(
  'the dispatcher of an instance locks with the ttl in LOCK_TTL',
  async () => {
    const own = new StopList();
    await stops.add(() => own.stopAll());
    const redis = new Redis(redisUrl);
    await own.add(async () => redis.disconnect());
    const instance = await Instance.start(
      MAIN,
      {
        INSTANCE: 'one',
        DATABASE_URL: await createScratchSchema(databaseUrl, 'lock_ttl', own),
        REDIS_URLS: redisUrl,
        KEY_PREFIX: 'lock_ttl',
        LOCK_TTL: '600000',
        // Each run takes one task and two seconds, so that the lock is held most of the time.
        DISPATCH_BATCH: '1',
        DISPATCH_WORK: '2000',
      },
      own,
    );

    await instance.submit(Array<typeof task>(50).fill(task));

    // The record of a lock stays for `LINGER_MS` after the end of the lock.
    const key = 'lock_ttl:lock:{batch:task:list}';
    let left = 0;
    await until(async () => (left = (await redis.pttl(key)) - LINGER_MS) > 0, 60_000);
    expect(left).toBeGreaterThan(500_000);
    expect(left).toBeLessThanOrEqual(600_000);
    await own.stopAll();
  },
  START_TIMEOUT,
);

test(
  'an instance answers 503 while the database is down, and recovers without a restart',
  async () => {
    const own = new StopList();
    await stops.add(() => own.stopAll());
    const url = new URL(await createScratchSchema(databaseUrl, 'database_away', own));
    const proxy = await startTcpProxy({ port: Number(url.port) });
    url.port = String(proxy.port);
    const instance = await Instance.start(
      MAIN,
      { INSTANCE: 'one', DATABASE_URL: url.href, REDIS_URLS: redisUrl, KEY_PREFIX: 'database_away' },
      own,
    );

    proxy.refuse();
    proxy.cut();
    await expect(instance.submit([task])).rejects.toThrow(/503.*database cannot be reached/);

    await proxy.accept();
    await expect(instance.submit([task])).resolves.toHaveLength(1);
    await own.stopAll();
  },
  START_TIMEOUT,
);

async function totalOf(instance: Instance): Promise<number> {
  const { tasks } = await instance.stats();
  return Object.values(tasks).reduce((sum, count) => sum + count, 0);
}
