import { beforeAll, describe, expect, test } from '@jest/globals';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { inspect } from 'node:util';
import { ConsoleLogger, Injectable, type INestApplication } from '@nestjs/common';
import { createClient } from '@redis/client';
import { TerminusModule } from '@nestjs/terminus';
import { Test } from '@nestjs/testing';
import { Cluster, Redis } from 'ioredis';
import {
  currentLock,
  Leader,
  type LeaderTerm,
  LOCK_ACQUIRE_CHANNEL,
  LockInterceptor,
  LockService,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../lib/index.js';
import { etcd } from '../lib/etcd/index.js';
import { FencedRegister } from '../lib/fencing/index.js';
import { RedlockHealthIndicator } from '../lib/health/index.js';
import { mysql } from '../lib/mysql/index.js';
import { postgres } from '../lib/postgres/index.js';
import { zookeeper } from '../lib/zookeeper/index.js';
import { RedlockTestingModule, TestLocks } from '../lib/testing/index.js';
import { MemoryStore } from '../lib/stores/memory/memory-store.js';
import { hasEtcd, startEtcd } from './support/etcd-server.js';
import { LogLines } from './support/log-lines.js';
import { startApp, startPlainApp } from './support/nest-app.js';
import { hasMysql, startMysqlServer } from './support/mysql-server.js';
import { startPostgresServer } from './support/postgres-server.js';
import { startMasters } from './support/redis-cluster.js';
import { startRedis } from './support/redis-server.js';
import { until } from './support/until.js';
import { hasZooKeeper, startZooKeeper } from './support/zookeeper-server.js';

const SECRET = 'correct-horse-battery';
const GUARDED = { args: ['--requirepass', SECRET] };

/** Traces of a client of any store. */
const CLIENTS = /Commander|Socket|TLSWrap|redisOptions|connectionString|connectionParameters|_events/;

@Injectable()
class Jobs {
  term: LeaderTerm | undefined;

  @Leader('jobs')
  async lead(term: LeaderTerm): Promise<void> {
    this.term = term;
    await new Promise((resolve) => term.signal.addEventListener('abort', resolve));
  }

  @WithLock('pages')
  async *pages(): AsyncGenerator<number> {
    yield 1;
    yield 2;
  }

  @WithLock('rows')
  async rows(): Promise<AsyncIterable<number>> {
    return this.#two();
  }

  async *#two(): AsyncGenerator<number> {
    yield 1;
    yield 2;
  }
}

/** Collects all objects that an application gets from the library. */
async function objectsOf(app: INestApplication): Promise<Record<string, unknown>> {
  const locks = app.get(LockService);
  const events: unknown[] = [];
  const hears = (event: unknown): void => void events.push(event);
  const channel = `tracing:${LOCK_ACQUIRE_CHANNEL}:asyncEnd`;
  subscribe(channel, hears);
  const handle = await locks.acquire('held', { ttl: 30_000 });
  unsubscribe(channel, hears);
  const reader = await locks.acquire('read', { ttl: 30_000, mode: 'shared' });
  const permit = await locks.acquire('permit', { ttl: 30_000, permits: 2 });
  const refused = await locks.acquire('held', { retry: false }).catch((error: unknown) => error);
  let [current, joined]: unknown[] = [];
  await locks.withLock('current', { ttl: 30_000 }, async () => {
    current = currentLock();
    await locks.withLock('current', { reentrant: true }, (lock) => {
      joined = lock;
    });
  });
  const jobs = app.get(Jobs);
  await until(() => jobs.term !== undefined);
  const [pages, rows] = [jobs.pages(), await jobs.rows()];
  await pages.next();
  const found = {
    ...{ handle, reader, permit, current, joined, refused, events, pages, rows },
    ...{ service: locks, term: jobs.term, leadership: locks.leader('jobs'), leaders: locks.leaders() },
    module: app.get(RedlockModule),
    interceptor: app.get(LockInterceptor, { strict: false }),
    health: app.get(RedlockHealthIndicator),
    register: new FencedRegister(),
    declared: locks.declared(),
  };
  await Promise.all([handle, reader, permit].map((lock) => lock.release()));
  // A generator that stays open keeps its lock, and each shutdown would wait for it.
  for (const each of [pages, rows]) await each[Symbol.asyncIterator]().return?.(undefined);
  return { ...found, released: handle };
}

/** Every way in which a log or a response could show the object. */
function waysToShow(object: unknown): string[] {
  const lines: string[] = [];
  const logger = new ConsoleLogger({ json: true, colors: false });
  const write = process.stdout.write;
  process.stdout.write = (line: string | Uint8Array) => lines.push(String(line)) > 0;
  try {
    logger.log(object);
    logger.log({ object });
  } finally {
    process.stdout.write = write;
  }
  return [
    ...lines,
    JSON.stringify(object),
    JSON.stringify({ data: [object] }),
    inspect(object),
    inspect({ object }, { depth: Infinity, maxArrayLength: null }),
    // As a serializer does that goes through the fields of an object.
    inspect(object, { depth: 12, customInspect: false }),
    inspect({ ...(object as object) }, { depth: 12, customInspect: false }),
  ];
}

/** A text that an object shows, and must not show. */
interface Leak {
  readonly object: string;
  readonly shown: string;
}

/** Shows all objects of the application in all ways; returns each password, client and host that is visible. */
async function leaksOf(
  app: INestApplication,
  hosts: readonly string[],
  further: Record<string, unknown> = {},
): Promise<Leak[]> {
  const leaks: Leak[] = [];
  for (const [object, value] of Object.entries({ ...(await objectsOf(app)), ...further })) {
    for (const text of waysToShow(value)) {
      const shown = [SECRET, ...hosts].filter((secret) => text.includes(secret));
      const client = CLIENTS.exec(text)?.[0];
      leaks.push(
        ...[...shown, ...(client === undefined ? [] : [client])].map((each) => ({ object, shown: each })),
      );
      if (text.length > 20_000) leaks.push({ object, shown: `${text.length} characters` });
    }
  }
  return leaks;
}

function appOn(nodes: RedlockModuleOptions['nodes']): Promise<INestApplication> {
  return startApp(
    { imports: [TerminusModule], providers: [Jobs, RedlockHealthIndicator] },
    { nodes, restartGuard: undefined, owner: 'owner-of-test' },
  );
}

describe('no object of the library shows a password, a client or a host', () => {
  test('with one Redis, from a URL and from options', async () => {
    const server = await startRedis(GUARDED);
    const { host, port } = server;
    for (const node of [`redis://:${SECRET}@${host}:${port}`, { host, port, password: SECRET }]) {
      const app = await appOn(node);
      // The thread cannot start from the sources; its lock knows the options of the nodes nevertheless.
      const lent = await app.get(LockService).acquire('lent', { ttl: 30_000, renew: 'thread' });
      expect(await leaksOf(app, [`:${port}`, String(port)], { lent })).toEqual([]);
      await lent.release();
      await app.close();
    }
  });

  test('with three Redis nodes, one of them a client of node-redis', async () => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(GUARDED)));
    const client = await createClient({
      url: `redis://:${SECRET}@${servers[0]!.host}:${servers[0]!.port}`,
    }).connect();
    const urls = servers.slice(1).map(({ host, port }) => `redis://:${SECRET}@${host}:${port}`);
    const app = await startApp(
      { imports: [TerminusModule], providers: [Jobs, RedlockHealthIndicator] },
      { nodes: [client, ...urls], restartGuard: false, owner: 'owner-of-test' },
    );
    expect(
      await leaksOf(
        app,
        servers.map(({ port }) => String(port)),
      ),
    ).toEqual([]);
    await app.close();
    client.destroy();
  });

  test('with a Cluster', async () => {
    const [server] = await startMasters([]);
    const { host, port } = server!;
    const looker = server!.client();
    await looker.config('SET', 'requirepass', SECRET);
    const cluster = new Cluster([{ host, port }], { redisOptions: { password: SECRET } });
    const app = await appOn(cluster);
    expect(await leaksOf(app, [String(port)])).toEqual([]);
    await app.close();
    cluster.disconnect();
  });

  test('with PostgreSQL', async () => {
    const { host, port } = await startPostgresServer();
    const app = await appOn(
      postgres({ connectionString: `postgres://postgres:${SECRET}@${host}:${port}/postgres` }),
    );
    expect(await leaksOf(app, [String(port)])).toEqual([]);
    await app.close();
  });

  (hasMysql() ? describe : describe.skip)('with MariaDB', () => {
    test('with a user and a password', async () => {
      const server = await startMysqlServer();
      await server.query(`set password for '${server.user}'@'%' = password('${SECRET}')`);
      const uri = new URL(server.uri);
      uri.password = SECRET;
      const app = await appOn(mysql({ uri: uri.href }));
      expect(await leaksOf(app, [uri.port])).toEqual([]);
      await app.close();
    });
  });

  (hasZooKeeper() ? describe : describe.skip)('with a user of ZooKeeper', () => {
    test('with a user and a password', async () => {
      const server = await startZooKeeper();
      const auth = { username: 'locks', password: SECRET };
      const app = await appOn(zookeeper({ connectionString: server.address, auth }));
      expect(await leaksOf(app, [server.address, String(server.port)])).toEqual([]);
      await app.close();
    });
  });

  (hasEtcd() ? describe : describe.skip)('with etcd', () => {
    test('with a user of etcd', async () => {
      const server = await startEtcd({ args: ['--bcrypt-cost', '4'] });
      await server.call('auth/user/add', { name: 'root', password: SECRET });
      await server.call('auth/role/add', { name: 'root' });
      await server.call('auth/user/grant', { user: 'root', role: 'root' });
      await server.call('auth/enable', {});
      const app = await appOn(etcd({ endpoints: server.url, username: 'root', password: SECRET }));
      expect(await leaksOf(app, [new URL(server.url).port])).toEqual([]);
      await app.close();
    });
  });

  test("with a store of one's own, in memory, and in the testing module", async () => {
    const own = Object.assign(new MemoryStore(), { name: 'own', client: { password: SECRET, _events: {} } });
    for (const nodes of [own, 'memory' as const]) {
      const app = await appOn(nodes);
      expect(await leaksOf(app, [])).toEqual([]);
      await app.close();
    }
    const imports = [RedlockTestingModule.forRoot({ owner: 'owner-of-test' }), TerminusModule];
    const app = await startPlainApp({ imports, providers: [Jobs, RedlockHealthIndicator] });
    const { history } = app.get(TestLocks);
    expect(await leaksOf(app, [], { testLocks: app.get(TestLocks), history })).toEqual([]);
    await app.close();
  });
});

describe('an object of the library', () => {
  let app: INestApplication;
  beforeAll(async () => {
    app = await startApp({ providers: [Jobs] }, { nodes: 'memory', owner: 'owner-of-test' });
  });

  test('a handle shows its keys, mode, state, token, remaining time and owner', async () => {
    const locks = app.get(LockService);
    const handle = await locks.acquire(['a', 'b'], { permits: 2, ttl: 30_000 });
    const { fencingToken, slots } = handle;
    const shown = JSON.parse(JSON.stringify(handle)) as { remaining: number };
    expect(shown).toEqual({
      ...{ keys: ['a', 'b'], mode: 'permits', slots, state: 'held', fencingToken, owner: 'owner-of-test' },
      remaining: expect.any(Number),
    });
    expect(shown.remaining).toBeGreaterThan(10_000);
    expect(inspect(handle)).toMatch(/^LockHandle \{\s+keys: \[ 'a', 'b' \],\s+mode: 'permits',/);
    expect(inspect([[[handle]]], { depth: 2 })).toBe('[ [ [ [LockHandle] ] ] ]');
    await handle.release();
    expect(JSON.parse(JSON.stringify(handle))).toMatchObject({ state: 'released', remaining: 0 });
  });

  test('a term, a leadership and the service show what they are', async () => {
    const { term } = app.get(Jobs);
    const locks = app.get(LockService);
    expect(JSON.parse(JSON.stringify(term))).toMatchObject({
      keys: ['leader:jobs'],
      state: 'held',
      owner: 'owner-of-test',
    });
    expect(JSON.stringify(locks.leader('jobs'))).toBe('{"name":"jobs","isLeader":true}');
    expect(inspect(locks)).toBe("LockService { owner: 'owner-of-test', held: 1 }");
  });
});

describe('an error does not show the password', () => {
  test('of a Redis that refuses it', async () => {
    const { host, port } = await startRedis({ args: ['--requirepass', 'another'] });
    const client = new Redis({ host, port, password: SECRET, lazyConnect: true, retryStrategy: null }).on(
      'error',
      () => undefined,
    );
    for (const node of [`redis://:${SECRET}@${host}:${port}`, client]) {
      const module = await Test.createTestingModule({ imports: [RedlockModule.forRoot({ nodes: node })] })
        .setLogger(new LogLines())
        .compile();
      const error = await module
        .get(LockService)
        .acquire('a', { retry: false })
        .catch((refused: unknown) => refused);
      expect(error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      for (const text of waysToShow(error)) expect(text).not.toContain(SECRET);
      const { votes } = error as { votes: unknown };
      expect(inspect([votes, error], { depth: Infinity, showHidden: true })).not.toContain(SECRET);
      await module.close();
    }
  });
});
