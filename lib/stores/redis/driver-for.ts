import type { Driver } from './connection/driver.js';
import type { GlideClient } from './glide/client-types.js';
import { GlideClusterDriver } from './glide/glide-cluster-driver.js';
import { GlideSingleDriver } from './glide/glide-single-driver.js';
import type { ClusterClient, SentinelClient, SingleClient } from './node-redis/client-types.js';
import { ClusterDriver } from './node-redis/cluster-driver.js';
import { SentinelDriver } from './node-redis/sentinel-driver.js';
import { SingleDriver } from './node-redis/single-driver.js';

/** A `Redis` or `Cluster` of ioredis 5 or 6, or of iovalkey. */
export interface IoredisClient {
  readonly status: string;
  readonly isCluster: boolean;
  evalsha(...args: never[]): unknown;
  duplicate(...args: never[]): unknown;
}

/** The result of `createClient` of node-redis 5 or 6, or of `createCluster` or `createSentinel` of node-redis 6. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  sendCommand(...args: never[]): Promise<unknown>;
  duplicate(...args: never[]): unknown;
}

/** A `GlideClient` or a `GlideClusterClient` of Valkey GLIDE 2. */
export interface ValkeyGlideClient {
  customCommand(...args: never[]): Promise<unknown>;
  exec(...args: never[]): Promise<unknown>;
  subscribe(...args: never[]): Promise<unknown>;
}

/**
 * A client of the application. The type lists methods and does not name a class: the application may have another copy
 * of the client's package than this library.
 */
export type RedisClient = IoredisClient | NodeRedisClient | ValkeyGlideClient;

export function isClient(node: object): node is RedisClient {
  return isIoredis(node) || isNodeRedis(node) || isGlide(node);
}

/** Makes a driver for a client of the application. The driver never closes the client. */
export function driverFor(client: RedisClient): Driver {
  if (isIoredis(client)) return client as unknown as Driver;
  if (isGlide(client)) {
    const glide = client as unknown as GlideClient;
    return 'ssubscribe' in client ? new GlideClusterDriver(glide) : new GlideSingleDriver(glide);
  }
  if ('masters' in client) return new ClusterDriver(client as unknown as ClusterClient);
  if ('getSentinelNode' in client) return new SentinelDriver(client as unknown as SentinelClient);
  return new SingleDriver(client as unknown as SingleClient);
}

function isIoredis(node: object): node is IoredisClient {
  return 'evalsha' in node && 'status' in node;
}

/** `true` for a client of GLIDE 2. Clients of version 1 cannot subscribe, and know no batches. */
function isGlide(node: object): node is ValkeyGlideClient {
  return 'customCommand' in node && 'exec' in node && 'subscribe' in node;
}

/**
 * `true` for a supported client of node-redis. Not supported are: Clusters of node-redis 5, which have no `isReady`;
 * clients of version 4, which have no `socketEpoch`; and pools, which have neither.
 */
function isNodeRedis(node: object): node is NodeRedisClient {
  if (!('sendCommand' in node && 'isReady' in node)) return false;
  return 'masters' in node || 'getSentinelNode' in node || 'socketEpoch' in node;
}
