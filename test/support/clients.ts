import { Redis as Redis6 } from 'ioredis-6';
import { Redis as Valkey } from 'iovalkey';
import { createClient, createCluster, createSentinel } from 'redis';
import { createClient as createClient5 } from 'redis-5';
import { driverFor, type RedisClient } from '../../lib/stores/redis/driver-for.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import type { StoreContext } from '../../lib/stores/redis/store-context.js';
import { cleanUpAfterTests } from './leftovers.js';

// Clients that an application makes, passes to the library, and closes. The application also connects the clients of
// node-redis.

/** A client keeps the process alive until its next attempt to connect, so the delay between attempts is short. */
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

/** Makes a client of node-redis 6 that begins to connect. */
export function nodeRedis(url: string, options: Parameters<typeof createClient>[0] = {}) {
  return begun(createClient({ ...QUICKLY, ...options, url }));
}

export function nodeRedisCluster(options: Parameters<typeof createCluster>[0]) {
  return begun(createCluster({ ...options, defaults: QUICKLY }));
}

export function nodeRedisSentinel(options: Parameters<typeof createSentinel>[0]) {
  return begun(createSentinel(options));
}

/** Makes a node that uses a client of the application. */
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
