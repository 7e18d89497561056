import { runInNewContext } from 'node:vm';
import { describe, expect, test } from '@jest/globals';
import { NestFactory } from '@nestjs/core';
import { Injectable, Module } from '@nestjs/common';
import { Redis } from 'ioredis';
import { etcd } from '../../../lib/etcd/index.js';
import {
  defineLocks,
  LockService,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../../lib/index.js';
import { makeRuntime } from '../../../lib/setup/open-runtime.js';
import { sendableNodes } from '../../../lib/setup/thread/sendable-nodes.js';
import { mysql } from '../../../lib/mysql/index.js';
import { postgres } from '../../../lib/postgres/index.js';
import { MemoryStore } from '../../../lib/stores/memory/memory-store.js';
import { zookeeper } from '../../../lib/zookeeper/index.js';
import { LogLines } from '../../support/log-lines.js';

const URL = 'redis://localhost:6379';
const SENTINELS = { name: 'locks', sentinels: [{ host: 'a', port: 26_379 }] };

describe('the nodes for a thread', () => {
  test.each([
    [URL, [{ redis: URL }]],
    [
      [URL, { host: 'b', tls: { ca: Buffer.from('ca') } }],
      [{ redis: URL }, { redis: { host: 'b', tls: { ca: Buffer.from('ca') } } }],
    ],
    [SENTINELS, [{ redis: SENTINELS }]],
    // Options that were made in another realm.
    [runInNewContext('[{ host: "a", tls: {} }]') as unknown, [{ redis: { host: 'a', tls: {} } }]],
    [postgres({ host: 'db' }), [{ by: 'postgres', options: { host: 'db' } }]],
    [etcd({ endpoints: 'http://e:2379' }), [{ by: 'etcd', options: { endpoints: 'http://e:2379' } }]],
    [
      zookeeper({ connectionString: 'z:2181/locks' }),
      [{ by: 'zookeeper', options: { connectionString: 'z:2181/locks' } }],
    ],
    [mysql({ host: 'db', database: 'app' }), [{ by: 'mysql', options: { host: 'db', database: 'app' } }]],
  ])('a thread can open the nodes of case %#, and gets a copy of their options', (nodes, sent) => {
    expect(structuredClone(sendableNodes(nodes).nodes)).toEqual(sent);
  });

  class RedisConfig {
    readonly host = 'a';
  }
  const secret = (): string => 'secret';

  test.each([
    [new Redis({ lazyConnect: true }), '`nodes` is a client, or a store that is not known to the thread'],
    [[URL, new Redis({ lazyConnect: true })], '`nodes[1]` is a client, or a store'],
    [new MemoryStore(), '`nodes` is a client, or a store'],
    [{ host: 'a', retryStrategy: () => 5 }, 'got `nodes.retryStrategy`. Leave it out'],
    [[new RedisConfig()], 'got `nodes[0]`. Give a plain object, such as `{ ...options }`'],
    [[{ host: 'a', tls: { secureContext: new Map() } }], 'got `nodes[0].tls.secureContext`'],
    [postgres({ host: 'db', password: secret }), 'got `postgres.password`'],
    [mysql({ host: 'db', database: 'app', password: secret }), 'got `mysql.password`'],
    [
      etcd({ endpoints: 'http://e:2379', username: 'app', password: secret }),
      'got `etcd.password`. Leave it out',
    ],
  ])('a thread cannot open the nodes of case %#, and the reason names them', (nodes, reason) => {
    const { refusal } = sendableNodes(nodes);
    expect(refusal).toContain(reason);
    expect(refusal).toContain(
      '(`threadNodes`), or use `renew: true`, with which a blocked event loop can lose',
    );
  });
});

function start(options: RedlockModuleOptions, providers: (new () => unknown)[] = [], lines = new LogLines()) {
  @Module({ imports: [RedlockModule.forRoot(options)], providers })
  class Root {}
  return NestFactory.createApplicationContext(Root, { logger: lines, abortOnError: false });
}

describe("a module with `renew: 'thread'`", () => {
  const client = new Redis({ lazyConnect: true });

  test('a module whose nodes a thread cannot open does not start with such defaults', async () => {
    await expect(start({ nodes: client, defaults: { renew: 'thread' } })).rejects.toThrow(
      "Expected `nodes` that a thread can open itself with `renew: 'thread'`",
    );
  });

  test('a module whose nodes a thread cannot open does not start with such a method, which the error names', async () => {
    @Injectable()
    class Reports {
      @WithLock('report', { renew: 'thread' })
      async build(): Promise<void> {}
    }
    await expect(start({ nodes: client }, [Reports])).rejects.toThrow('@WithLock of Reports.build: Expected');
  });

  test('a declared lock that nothing may use prevents no start, and a call with it is refused', async () => {
    const locks = defineLocks({ report: { key: 'report', renew: 'thread' } });
    const runtime = makeRuntime({ nodes: client, locks });
    expect(() => runtime.resolve({ renew: 'thread' })).toThrow('Expected `nodes` that a thread can open');
    await runtime.close();
  });

  test.each([['memory'], [['memory']]] as [RedlockModuleOptions['nodes']][])(
    '`nodes` %j takes it for `true`, and the log says so once',
    async (nodes) => {
      const lines = new LogLines();
      const app = await start({ nodes, defaults: { renew: 'thread' } }, [], lines);
      const locks = app.get(LockService);
      for (const key of ['a', 'b']) await (await locks.acquire(key)).release();
      expect(
        lines.of('log').filter((line) => line.includes("`renew: 'thread'` is the same as `true`")),
      ).toHaveLength(1);
      await app.close();
    },
  );
});
