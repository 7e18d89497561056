import { expect, test } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import type { EventEmitter } from 'node:events';
import { createClient, createCluster, createSentinel } from 'redis';
import { LockService } from '../../../lib/index.js';
import type { RedisClient } from '../../../lib/stores/redis/driver-for.js';
import { startApp } from '../../support/nest-app.js';

const NOWHERE = { host: '127.0.0.1', port: 1 };

const CLIENTS: Readonly<Record<string, () => RedisClient & EventEmitter>> = {
  Redis: () => new Redis({ ...NOWHERE, lazyConnect: true }),
  Cluster: () => new Cluster([NOWHERE], { lazyConnect: true }),
  createClient: () => createClient({ socket: NOWHERE }),
  createCluster: () => createCluster({ rootNodes: [{ socket: NOWHERE }] }),
  createSentinel: () => createSentinel({ name: 'locks', sentinelRootNodes: [NOWHERE] }),
};

function listenersOf(client: EventEmitter): Record<string, number> {
  return Object.fromEntries(client.eventNames().map((name) => [String(name), client.listenerCount(name)]));
}

test.each(Object.entries(CLIENTS))(
  'an application that cannot start leaves no listener on a passed-in client (%s)',
  async (_, open) => {
    const client = open();
    const before = listenersOf(client);
    const broken = {
      provide: 'broken',
      useFactory: () => {
        throw new Error('no start');
      },
      inject: [LockService],
    };
    // After a failed start, Nest calls no hook in which the module could remove listeners.
    await expect(startApp({ providers: [broken] }, { nodes: client })).rejects.toThrow('no start');
    expect(listenersOf(client)).toEqual(before);
  },
);
