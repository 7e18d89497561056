import { Redis as Redis6 } from 'ioredis-6';
import { Redis as Valkey } from 'iovalkey';
import { createClient, createCluster, createSentinel } from 'redis';
import { createClient as createClient5 } from 'redis-5';
import { driverFor, type RedisClient } from '../../lib/stores/redis/driver-for.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import type { StoreContext } from '../../lib/stores/redis/store-context.js';
import { cleanUpAfterTests } from './leftovers.js';

// Clients as an application makes them, which are passed in and closed by it. Those of node-redis are connected by it, too.

/** One that waits longer between its attempts keeps the process alive so long. */
const QUICKLY = { socket: { reconnectStrategy: 100 } } as const;

export type ClientMaker = (url: string) => RedisClient;

export const CLIENTS: Readonly<
  Record<'ioredis 6' | 'iovalkey' | 'node-redis 5' | 'node-redis 6', ClientMaker>
> = {
  'ioredis 6': (url) => {
    const client = new Redis6(url);
    client.on('error', () => undefined);
    cleanUpAfterTests(async () => client.disconnect());
    return client;
  },
  iovalkey: (url) => {
    const client = new Valkey(url);
    client.on('error', () => undefined);
    cleanUpAfterTests(async () => client.disconnect());
    return client;
  },
  'node-redis 5': (url) => begun(createClient5({ url, ...QUICKLY })),
  'node-redis 6': (url) => begun(createClient({ url, ...QUICKLY })),
};

export type NodeRedis = ReturnType<typeof nodeRedis>;

/** A client of node-redis 6 that is connecting. */
export function nodeRedis(url: string, options: Parameters<typeof createClient>[0] = {}) {
  return begun(createClient({ ...QUICKLY, ...options, url }));
}

export function nodeRedisCluster(options: Parameters<typeof createCluster>[0]) {
  return begun(createCluster({ ...options, defaults: QUICKLY }));
}

export function nodeRedisSentinel(options: Parameters<typeof createSentinel>[0]) {
  return begun(createSentinel(options));
}

/** A node over a client that was passed in. */
export function storeOver(client: RedisClient, context: StoreContext): RedisStore {
  return new RedisStore(driverFor(client), false, context);
}

interface Connectable {
  readonly isOpen: boolean;
  on(event: string, listener: () => void): unknown;
  connect(): Promise<unknown>;
  destroy(): unknown;
}

function begun<Client extends Connectable>(client: Client): Client {
  client.on('error', () => undefined);
  client.connect().catch(() => undefined);
  cleanUpAfterTests(async () => {
    if (client.isOpen) await client.destroy();
  });
  return client;
}
