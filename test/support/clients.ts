import { GlideClient, GlideClusterClient, Logger } from '@valkey/valkey-glide';
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

// GLIDE writes each error of a server to the console.
Logger.setLoggerConfig('off');

export type ClientMaker = (url: string) => RedisClient | Promise<RedisClient>;

export const CLIENTS = {
  'ioredis 6': (url: string) => {
    const client = new Redis6(url);
    client.on('error', () => undefined);
    cleanUpAfterTests(async () => client.disconnect());
    return client;
  },
  iovalkey: (url: string) => {
    const client = new Valkey(url);
    client.on('error', () => undefined);
    cleanUpAfterTests(async () => client.disconnect());
    return client;
  },
  'node-redis 5': (url: string) => begun(createClient5({ url, ...QUICKLY })),
  'node-redis 6': (url: string) => begun(createClient({ url, ...QUICKLY })),
  'Valkey GLIDE': (url: string) => glide(addressIn(url)),
} satisfies Readonly<Record<string, ClientMaker>>;

type GlideAddress = { readonly host: string; readonly port: number };

/** Connects a client of GLIDE to one server. */
export async function glide(
  { host, port }: GlideAddress,
  options: Partial<Parameters<typeof GlideClient.createClient>[0]> = {},
): Promise<GlideClient> {
  return closedAfterTests(await GlideClient.createClient({ ...options, addresses: [{ host, port }] }));
}

/** Connects a client of GLIDE to a Cluster. */
export async function glideCluster(addresses: readonly GlideAddress[]): Promise<GlideClusterClient> {
  return closedAfterTests(
    await GlideClusterClient.createClient({ addresses: addresses.map(({ host, port }) => ({ host, port })) }),
  );
}

function closedAfterTests<Client extends { close(): void }>(client: Client): Client {
  cleanUpAfterTests(async () => client.close());
  return client;
}

function addressIn(url: string): GlideAddress {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

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
