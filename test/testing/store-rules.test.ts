import { afterEach, describe, expect, test } from '@jest/globals';
import { type INestApplicationContext, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Cluster } from 'ioredis';
import { LockService, RedlockModule, type RedlockModuleOptions } from '../../lib/index.js';
import { etcd } from '../../lib/etcd/index.js';
import { postgres } from '../../lib/postgres/index.js';
import type { StoreFactory } from '../../lib/store/index.js';
import { TestLocks } from '../../lib/testing/index.js';
import { TestNode } from '../../lib/testing/test-node.js';

// No server listens at these addresses: a test connects to none of them.
const ETCD = etcd({ endpoints: 'http://127.0.0.1:1' });
const POSTGRES = postgres({ connectionString: 'postgres://127.0.0.1:1/none' });

/** A store of one's own that keeps exclusive locks only. */
class PlainStore extends TestNode {
  override readonly modes = ['exclusive'] as const;
}

const opened: INestApplicationContext[] = [];
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
});

async function locksWith(nodes: RedlockModuleOptions['nodes']): Promise<LockService> {
  @Module({ imports: [RedlockModule.forRoot({ nodes })] })
  class AppModule {}
  const builder = new TestLocks().override(Test.createTestingModule({ imports: [AppModule] }));
  const module = await builder.compile();
  opened.push(await module.init());
  return module.get(LockService);
}

describe('TestLocks.override', () => {
  test.each<[string, RedlockModuleOptions['nodes'], string | string[], object, string]>([
    ['a ttl that etcd cannot keep', ETCD, 'k', { ttl: 1_500 }, 'at least 2000'],
    [
      'more keys than etcd can store',
      ETCD,
      Array.from({ length: 70 }, (_, at) => `k${at}`),
      {},
      'cannot store',
    ],
    ['a NUL character on etcd', ETCD, 'a\0b', {}, 'NUL'],
    ['a NUL character on PostgreSQL', POSTGRES, 'a\0b', {}, 'NUL'],
    [
      'a mode that a store of the application cannot keep',
      new PlainStore(),
      'k',
      { mode: 'shared' },
      "only in 'exclusive'",
    ],
  ])('refuses %s, as in production', async (_what, nodes, key, options, message) => {
    const locks = await locksWith(nodes);
    await expect(locks.withLock(key, options, () => 'ran')).rejects.toThrow(message);
    await expect(locks.withLock('fine', { ttl: 10_000 }, () => 'ran')).resolves.toBe('ran');
  });

  test('refuses keys in different slots of a Redis Cluster, as in production', async () => {
    const client = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true });
    const locks = await locksWith(client);
    await expect(locks.withLock(['a', 'b'], () => 'ran')).rejects.toThrow('hash tag');
    await expect(locks.withLock(['{x}:a', '{x}:b'], () => 'ran')).resolves.toBe('ran');
    client.disconnect();
  });

  test('has no rules of a store whose settings are missing in the test', async () => {
    const factory: StoreFactory = {
      openStore: () => {
        throw new Error('no DATABASE_URL');
      },
    };
    const locks = await locksWith(factory);
    await expect(locks.withLock('a', { ttl: 1_500 }, () => 'ran')).resolves.toBe('ran');
  });
});
