import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Injectable, type INestApplication } from '@nestjs/common';
import { Redis } from 'ioredis';
import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { etcd } from '../../lib/etcd/index.js';
import {
  currentLock,
  Leader,
  type LeaderTerm,
  type LockEvent,
  LockService,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { History } from '../../lib/board/live/history.js';
import { LiveLocks } from '../../lib/board/live/live-locks.js';
import { postgres } from '../../lib/postgres/index.js';
import { CLIENTS, nodeRedis } from '../support/clients.js';
import { collectGarbage } from '../support/collect-garbage.js';
import { hasEtcd, startEtcd } from '../support/etcd-server.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

// Rule S30: timers and requests that serve several callers run in no caller's asynchronous context. A context that a timer, a
// socket or a Promise of the library kept would show a stranger's request to loggers, and would keep it in memory.

/** The data of a request, as loggers and tracers keep it in an asynchronous context. */
class Request {
  constructor(readonly name: string) {}
}
const request = new AsyncLocalStorage<Request>();
const nameOf = (): string => request.getStore()?.name ?? 'none';
const inRequest = <T>(name: string, task: () => T): T => request.run(new Request(name), task);

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

@Injectable()
class Service {
  @WithLock('method', { ttl: 6_000 })
  async locked(task: () => Promise<unknown>): Promise<unknown> {
    return task();
  }
}

async function start(nodes: RedlockModuleOptions['nodes'], options: Partial<RedlockModuleOptions> = {}) {
  const app = await startApp({ providers: [Service] }, { nodes, ...options });
  return { app, locks: app.get(LockService), service: app.get(Service) };
}

describe('a request that has ended', () => {
  /** Each makes the nodes of a module whose connections are opened by the first call. */
  const STORES: readonly [string, () => Promise<RedlockModuleOptions['nodes']>, boolean?][] = [
    ['memory', async () => 'memory'],
    ['Redis', async () => redis.url],
    ['a client of ioredis', async () => redis.client()],
    [
      'a client of ioredis that connects on its first command',
      async () => {
        const client = new Redis(redis.url, { lazyConnect: true });
        cleanUpAfterTests(async () => client.disconnect());
        return client;
      },
    ],
    ['a client of node-redis', async () => nodeRedis(redis.url)],
    ['a client of Valkey GLIDE', async () => CLIENTS['Valkey GLIDE'](redis.url)],
    [
      'PostgreSQL',
      async () => {
        const server = await startPostgresServer();
        cleanUpAfterTests(() => server.stop());
        return postgres({ connectionString: server.url });
      },
    ],
    [
      'etcd',
      async () => {
        const server = await startEtcd();
        cleanUpAfterTests(() => server.stop());
        return etcd({ endpoints: [server.url] });
      },
      !hasEtcd(),
    ],
  ];

  test.each(STORES.filter(([, , isMissing]) => !isMissing))(
    'is not kept in memory while another call holds a lock: %s',
    async (_name, nodesOf) => {
      const nodes = await nodesOf();
      // The ttl is long, because each collection of garbage blocks the event loop.
      const options = { ttl: 15_000, retry: { timeout: 60_000 } };
      const app = await inRequest('of the start', () => start(nodes));
      const { locks, service } = app;
      let end = (): void => undefined;
      let held = false;
      /** Everything that opens a connection, a queue, a timer or a subscription, in the context of one request. */
      const work = async (): Promise<void> => {
        await using lock = await locks.acquire('first', options);
        const waits = locks.withLock('first', options, () => undefined);
        await expect(locks.tryAcquire('first')).resolves.toBeNull();
        await lock.extend(20_000);
        await locks.inspect('first');
        for await (const info of locks.list()) expect(info.key).toEqual(expect.any(String));
        await locks.checkNodes();
        await service.locked(() => sleep(5));
        await lock.release();
        await waits;
        const long = locks.acquire('long', options);
        await locks.forceRelease('long').catch(() => undefined);
        await (await long).release();
      };
      let kept: WeakRef<Request>;
      const other = inRequest('the other', () =>
        locks.withLock('held', options, async () => {
          held = true;
          await new Promise<void>((resolve) => (end = resolve));
        }),
      );
      await until(() => held);
      await (() => {
        const store = new Request('ended');
        kept = new WeakRef(store);
        return request.run(store, work);
      })();
      // Connections without use and answered time limits may keep it for some seconds.
      let isKept = true;
      await until(async () => {
        collectGarbage();
        await sleep(100);
        collectGarbage();
        isKept = kept.deref() !== undefined;
        return !isKept;
      }, 15_000).catch(() => undefined);
      expect(isKept).toBe(false);
      end();
      await other;
      await app.app.close();
    },
    120_000,
  );
});

test('renewals, and requests for several callers, are sent in the context of no request', async () => {
  const client = redis.client();
  const sent: string[] = [];
  const evalsha = client.evalsha.bind(client) as (...args: unknown[]) => Promise<unknown>;
  client.evalsha = ((...args: unknown[]) => {
    sent.push(nameOf());
    return evalsha(...args);
  }) as typeof client.evalsha;
  const { app, locks } = await start(client, PATIENT);
  // So long that a busy machine does not lose the lock between two renewals.
  const ttl = 3_000;
  const first = inRequest('first', () => locks.withLock('a', { ttl }, () => sleep(100)));
  await inRequest('second', () =>
    locks.withLock('b', { ttl }, async () => {
      await first;
      sent.length = 0;
      await until(() => sent.length >= 2);
    }),
  );
  expect(new Set(sent)).toEqual(new Set(['none']));
  await app.close();
});

describe('code that belongs to one call', () => {
  test('a listener of the signal runs in the context that read the signal, also when another request ends the lock', async () => {
    const { app, locks } = await start('memory');
    const told: string[] = [];
    const holding = inRequest('holder', () =>
      locks.withLock('k', { onLost: 'ignore' }, async ({ signal }) => {
        signal.addEventListener('abort', () => told.push(nameOf()));
        await once(signal, 'abort');
      }),
    );
    await until(async () => (await locks.inspect('k')).held);
    await inRequest('operator', () => locks.forceRelease('k'));
    await holding;
    expect(told).toEqual(['holder']);
    await app.close();
  });

  test('a listener of the signal runs in the context of its call, although nested calls in others listen for the loss, too', async () => {
    const { app, locks } = await start('memory');
    const told: string[] = [];
    const nested = (name: string): Promise<unknown> =>
      inRequest(name, () => locks.withLock('k', { reentrant: true, onLost: 'ignore' }, () => sleep(5)));
    await inRequest('holder', () =>
      locks.withLock('k', { onLost: 'ignore' }, async (lock) => {
        const items = Promise.allSettled([nested('first item'), nested('second item')]);
        lock.signal.addEventListener('abort', () => told.push(nameOf()));
        await locks.forceRelease('k');
        await items;
      }),
    );
    expect(told).toEqual(['holder']);
    await app.close();
  });

  test('`onEvent` is called in the context of the call that the event is about', async () => {
    const events: string[] = [];
    const onEvent = ({ type, ...event }: LockEvent): void => {
      if ('keys' in event) events.push(`${type} ${event.keys[0]} in ${nameOf()}`);
    };
    const { app, locks } = await start('memory', { onEvent });
    const one = inRequest('a', () => locks.withLock('a', () => sleep(20)));
    const waiting = inRequest('b', () =>
      locks.withLock('a', { onLost: 'ignore' }, ({ signal }) => once(signal, 'abort')),
    );
    await one;
    await until(() => events.length === 3);
    await inRequest('operator', () => locks.forceRelease('a'));
    await waiting;
    expect(events.toSorted()).toEqual([
      'acquired a in a',
      'acquired a in b',
      'force-released a in operator',
      'lost a in b',
      'released a in a',
    ]);
    await app.close();
  });

  test('a `reentrant` call in a listener for a lost lock does not join the lock of another request', async () => {
    const joined: Promise<unknown>[] = [];
    const { app, locks } = await start('memory', {
      onEvent: ({ type }) => {
        if (type === 'lost')
          joined.push(locks.withLock('other', { reentrant: true, retry: false }, () => 'joined'));
      },
    });
    await inRequest('a', () =>
      locks.withLock('other', async () => {
        const lost = inRequest('b', () =>
          locks.withLock('k', { onLost: 'ignore' }, ({ signal }) => once(signal, 'abort')),
        );
        void lost;
      }),
    );
    await until(async () => (await locks.inspect('k')).held);
    const holding = locks.withLock('other', () => until(() => joined.length > 0));
    await locks.forceRelease('k');
    await holding;
    const [outcome] = await Promise.allSettled(joined);
    expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'LOCK_HELD' } });
    await app.close();
  });
});

describe('code that outlives the request that started it', () => {
  @Injectable()
  class Candidate {
    readonly seen: string[] = [];

    @Leader('candidate')
    async lead({ signal }: LeaderTerm): Promise<void> {
      this.seen.push(nameOf());
      signal.addEventListener('abort', () => this.seen.push(nameOf()));
      if (!signal.aborted) await once(signal, 'abort');
    }
  }

  test('a listener for the loss of the lock of a leader runs in the context that read the signal of the lock', async () => {
    const told: string[] = [];
    class Worker {
      @Leader('worker')
      async lead({ signal }: LeaderTerm): Promise<void> {
        inRequest('part', () => currentLock()?.signal.addEventListener('abort', () => told.push(nameOf())));
        await once(signal, 'abort');
      }
    }
    const app = await startApp({ providers: [Worker] }, { nodes: 'memory' });
    const locks = app.get(LockService);
    await until(() => locks.leader('worker').isLeader());
    await inRequest('operator', () => locks.forceRelease('leader:worker'));
    await until(() => told.length > 0);
    expect(told).toEqual(['part']);
    await app.close();
  });

  test('a leader leads, and learns of its end, in the context of no request', async () => {
    const app: INestApplication = await startApp({ providers: [Candidate] });
    const leadership = app.get(LockService).leader('candidate');
    const { seen } = app.get(Candidate);
    await until(() => seen.length === 1);
    await inRequest('resigns', () => leadership.resign());
    inRequest('campaigns', () => leadership.campaign());
    await until(() => seen.length === 3);
    expect(seen).toEqual(['none', 'none', 'none']);
    await app.close();
  });

  test('a listener of `closing` runs in the context of no request, also when a locked task closes the application', async () => {
    const { app, locks } = await start('memory');
    const told: string[] = [];
    locks.closing.addEventListener('abort', () => told.push(`${nameOf()}, under ${currentLock()?.keys[0]}`));
    await inRequest('closes', () => locks.withLock('k', { onLost: 'ignore' }, () => app.close()));
    expect(told).toEqual(['none, under undefined']);
  });

  test('the board reads the locks in the context of no viewer', async () => {
    const looks: string[] = [];
    const source = {
      list: () => (looks.push(nameOf()), (async function* () {})()),
      checkNodes: async () => ({ available: true, quorum: 1, nodes: [] }),
      forceRelease: async () => false,
      waiting: async () => new Map(),
      campaigns: () => [],
      heldIds: () => new Set<string>(),
    };
    const live = new LiveLocks(source, { allowForceRelease: false, declared: [] }, new History(), undefined);
    const stop = inRequest('viewer', () => live.watch(() => undefined));
    await until(() => looks.length >= 2);
    stop();
    expect(new Set(looks)).toEqual(new Set(['none']));
  });
});
