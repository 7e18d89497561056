import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Controller, Get, type INestApplication, Query } from '@nestjs/common';
import { HealthCheck, HealthCheckService, HealthIndicatorService, TerminusModule } from '@nestjs/terminus';
import { Redis } from 'ioredis';
import { once } from 'node:events';
import { RedlockHealthIndicator } from '../../lib/health/index.js';
import {
  Leader,
  type LeaderTerm,
  LockService,
  RedlockModule,
  type RedlockModuleOptions,
} from '../../lib/index.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

@Controller('health')
class HealthController {
  constructor(
    private readonly health: HealthCheckService,
    private readonly locks: RedlockHealthIndicator,
  ) {}

  @Get()
  @HealthCheck()
  check(@Query() options: Record<string, string>) {
    const details = options['details'] === 'true';
    const { instance } = options;
    return this.health.check([
      () => this.locks.isHealthy('locks', { details, ...(instance ? { instance } : {}) }),
    ]);
  }
}

function healthApp(...modules: (RedlockModuleOptions & { name?: string })[]): Promise<INestApplication> {
  return startPlainApp({
    imports: [
      TerminusModule.forRoot({ logger: false }),
      ...modules.map((each) => RedlockModule.forRoot({ ...PATIENT, ...each })),
    ],
    controllers: [HealthController],
    providers: [RedlockHealthIndicator],
  });
}

interface Answer {
  readonly http: number;
  readonly locks: Record<string, unknown>;
}

async function ask(app: INestApplication, query = ''): Promise<Answer> {
  const response = await fetch(`${await app.getUrl()}/health${query}`);
  const { details } = (await response.json()) as { details: { locks: Record<string, unknown> } };
  return { http: response.status, locks: details.locks };
}

describe('the health check of three nodes', () => {
  let servers: RedisServer[];
  let app: INestApplication;

  /** Asks until `voting` nodes vote. On a busy machine, a node does not vote if it answers after its limit of 2 s. */
  async function askUntilVoting(voting: number, query = ''): Promise<Answer> {
    let answer!: Answer;
    await until(async () => (answer = await ask(app, query)).locks['voting'] === voting);
    return answer;
  }

  beforeAll(async () => {
    servers = await startRedisNodes(3);
    app = await healthApp(
      { nodes: servers.map(({ url }) => url), restartGuard: 500 },
      { name: 'billing', nodes: 'memory' },
    );
    await app.listen(0, '127.0.0.1');
    await askUntilVoting(3);
  });
  afterAll(async () => {
    await app.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  test('the health check reports "up" when all nodes vote, and shows no address', async () => {
    expect(await askUntilVoting(3)).toEqual({
      http: 200,
      locks: { status: 'up', quorum: 2, voting: 3, guarded: 0, unfit: 0, unreachable: 0, warnings: [] },
    });
  });

  test('with `details=true`, the health check shows the state of each node', async () => {
    const { locks } = await askUntilVoting(3, '?details=true');
    const [first] = servers;
    expect(locks['nodes']).toContainEqual({
      node: `127.0.0.1:${first!.port}`,
      state: 'voting',
      warnings: [],
    });
  });

  test('the health check reports a named instance of the module separately', async () => {
    await expect(ask(app, '?instance=billing')).resolves.toMatchObject({ locks: { quorum: 1, voting: 1 } });
  });

  test('the health check reports "degraded" when one of three nodes is down, and "down" when two are', async () => {
    const [a, b] = servers;
    await a!.kill();
    const degraded = { http: 200, locks: { status: 'degraded', unreachable: 1 } };
    await expect(askUntilVoting(2)).resolves.toMatchObject(degraded);

    await b!.kill();
    const down = { http: 503, locks: { status: 'down', unreachable: 2 } };
    await expect(askUntilVoting(1)).resolves.toMatchObject(down);
  });
});

describe('the health check of one node', () => {
  let redis: RedisServer;
  let client: Redis;
  beforeAll(async () => {
    redis = await startRedis();
    client = redis.client();
  });
  afterAll(() => redis.stop());

  async function checked(options: Omit<RedlockModuleOptions, 'nodes'>) {
    const app = await healthApp({ ...options, nodes: redis.url });
    const health = await app.get(RedlockHealthIndicator).isHealthy('locks');
    await app.close();
    return health.locks;
  }

  test('the health check warns if the node may evict locks, or forget locks in a restart', async () => {
    await client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await expect(checked({})).resolves.toMatchObject({
      status: 'up',
      warnings: [
        expect.stringContaining('maxmemory-policy is allkeys-lru'),
        expect.stringContaining('restart'),
      ],
    });
    await client.config('SET', 'maxmemory-policy', 'noeviction');
  });

  test('with `restartGuard: false`, the health check does not warn about a restart', async () => {
    await expect(checked({ restartGuard: false })).resolves.toMatchObject({ status: 'up', warnings: [] });
    await client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await expect(checked({ restartGuard: false })).resolves.toMatchObject({
      warnings: [expect.stringContaining('maxmemory-policy is allkeys-lru')],
    });
    await client.config('SET', 'maxmemory-policy', 'noeviction');
  });

  test('the health check reports a node as guarded after a loss of data, and says how long this node will not vote', async () => {
    // Milliseconds; so long that not even a busy machine takes this time between two steps of the test.
    const GUARD = 6_000;
    const app = await healthApp({ nodes: redis.url, restartGuard: GUARD });
    const indicator = app.get(RedlockHealthIndicator);
    const state = async (): Promise<unknown> => (await indicator.isHealthy('locks')).locks;
    // The guard also holds back a node that has just started, so wait until this one votes.
    await until(async () => (await app.get(LockService).checkNodes()).available);
    await client.flushall();
    await expect(state()).resolves.toMatchObject({ status: 'down', guarded: 1, voting: 0 });
    const [node] = (await app.get(LockService).checkNodes()).nodes;
    expect(node).toMatchObject({ state: 'guarded', reason: expect.stringContaining('votes again in') });
    expect(node!.votesIn).toBeGreaterThan(0);
    expect(node!.votesIn).toBeLessThanOrEqual(GUARD);
    await until(async () => (await app.get(LockService).checkNodes()).available);
    await expect(state()).resolves.toMatchObject({ status: 'up', guarded: 0, voting: 1 });
    await app.close();
  });

  test.each<[string, (admin: Redis) => Promise<unknown>, RegExp]>([
    ['has no free memory', (admin) => admin.config('SET', 'maxmemory', '1'), /OOM/],
    [
      'has fewer replicas than min-replicas-to-write',
      (admin) => admin.config('SET', 'min-replicas-to-write', '1'),
      /NOREPLICAS/,
    ],
    [
      'does not let its user write',
      (admin) => admin.call('ACL', 'SETUSER', 'default', '-set'),
      /can't run this command|ACL failure|NOPERM/,
    ],
    [
      'does not let its user release',
      (admin) => admin.call('ACL', 'SETUSER', 'default', '-del'),
      /can't run this command|ACL failure|NOPERM/,
    ],
  ])('a node is reported as unfit while it %s, and as voting afterwards', async (_what, break_, reason) => {
    // With a restart guard, the check runs one more script. That script writes the node's marker, a key with the time
    // since which the node has kept its data.
    for (const restartGuard of [false, 1] as const) {
      const server = await startRedis();
      await server.client().call('ACL', 'SETUSER', 'admin', 'on', '>pw', '~*', '&*', '+@all');
      const admin = server.client({ username: 'admin', password: 'pw' });
      const app = await healthApp({ nodes: server.url, restartGuard, owner: 'me' });
      const indicator = app.get(RedlockHealthIndicator);
      const state = (): Promise<unknown> => indicator.isHealthy('locks', { details: true });
      await until(async () => (await app.get(LockService).checkNodes()).available);

      await break_(admin);
      await expect(state()).resolves.toMatchObject({
        locks: {
          status: 'down',
          voting: 0,
          unfit: 1,
          unreachable: 0,
          nodes: [{ state: 'unfit', reason: expect.stringMatching(reason) }],
        },
      });

      await admin.config('SET', 'maxmemory', '0', 'min-replicas-to-write', '0');
      await admin.call('ACL', 'SETUSER', 'default', '+@all');
      await until(async () => (await app.get(LockService).checkNodes()).available);
      await app.close();
      await server.stop();
    }
  });

  test('the health check writes nothing to the disk or to the replicas of a node', async () => {
    // A key of an earlier test could expire between the two reads.
    await client.flushall();
    const app = await healthApp({ nodes: redis.url });
    const written = async (): Promise<unknown> => {
      const info = await client.info();
      return [await client.keys('*'), ...info.matchAll(/^(rdb_changes|master_repl_offset).*$/gm)].map(String);
    };
    const before = await written();
    expect(before).toHaveLength(3);
    await expect(app.get(LockService).checkNodes()).resolves.toMatchObject({ available: true });
    await expect(written()).resolves.toEqual(before);
    await app.close();
  });

  test('the health check reports a node as unfit after the node became a replica', async () => {
    const app = await healthApp({ nodes: redis.url });
    const other = await startRedis();
    await client.replicaof('127.0.0.1', other.port);
    await client.client('KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    const indicator = app.get(RedlockHealthIndicator);
    await until(async () => (await indicator.isHealthy('locks')).locks['unfit'] === 1);
    await expect(indicator.isHealthy('locks')).resolves.toMatchObject({ locks: { status: 'down' } });
    await client.replicaof('NO', 'ONE');
    await app.close();
    await other.stop();
  });
});

test('with terminus 11, the health indicator reports "degraded" as "up"', async () => {
  const app = await healthApp({ nodes: 'memory' });
  const service = app.get(LockService);
  const checkNodes = service.checkNodes.bind(service);
  service.checkNodes = async () => {
    const status = await checkNodes();
    return { ...status, nodes: [...status.nodes, { node: 'b', state: 'unreachable', warnings: [] }] };
  };
  const eleven = {
    check: () => ({ up: (data: object) => ({ up: data }), down: (data: object) => ({ down: data }) }),
  };
  const indicator = new RedlockHealthIndicator(
    eleven as unknown as HealthIndicatorService,
    { get: () => service } as never,
  );
  await expect(indicator.isHealthy('locks')).resolves.toMatchObject({ up: { voting: 1, unreachable: 1 } });
  await app.close();
});

test('the health indicator rejects invalid options, and names them', async () => {
  const app = await healthApp({ nodes: 'memory' });
  const indicator = app.get(RedlockHealthIndicator);
  await expect(indicator.isHealthy('locks', { details: 1 } as never)).rejects.toThrow('Expected `details`');
  await expect(indicator.isHealthy('locks', { name: 'a' } as never)).rejects.toThrow('Unknown option `name`');
  await expect(indicator.isHealthy('locks', { instance: 'typo' })).rejects.toThrow(
    "RedlockModule.forRoot({ nodes, name: 'typo' })",
  );
  await app.close();
});

test('the health indicator reports for each name in @Leader whether the application leads', async () => {
  class Consumer {
    @Leader('consumer')
    async lead({ signal }: LeaderTerm): Promise<void> {
      await once(signal, 'abort');
    }
  }
  const app = await startPlainApp({
    imports: [TerminusModule.forRoot({ logger: false }), RedlockModule.forRoot({ nodes: 'memory' })],
    controllers: [HealthController],
    providers: [RedlockHealthIndicator, Consumer],
  });
  await app.listen(0, '127.0.0.1');
  const leader = app.get(LockService).leader('consumer');
  await until(() => leader.isLeader());
  expect((await ask(app)).locks['leads']).toEqual({ consumer: true });
  await leader.resign();
  expect((await ask(app)).locks['leads']).toEqual({ consumer: false });
  await app.close();
});
