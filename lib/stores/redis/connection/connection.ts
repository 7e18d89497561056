import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Driver, DriverOptions, Server } from './driver.js';

/** A client of ioredis. */
export type Client = Redis | Cluster;

/**
 * Settings of clients that the library makes. A command must be written immediately or not at all. A command that is
 * queued, or resent after a lost connection, would run after its caller has given up, and leave a lock without an owner
 * (S15).
 */
const FORCED: RedisOptions = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableAutoPipelining: false,
  stringNumbers: false,
  lazyConnect: true,
  // `MasterWatch` detects fail-overs. The detector of ioredis would end the client for good when a message arrives
  // while the client connects.
  failoverDetector: false,
};

/**
 * Milliseconds without traffic after which TCP itself checks a connection, and so keeps it alive in networks that
 * forget idle connections. The default of ioredis 5 leaves the delay to the system: two hours on Linux.
 */
export const KEEP_ALIVE_MS = 10_000;

/** Settings that the user's own settings override. */
const PREFERRED: RedisOptions = {
  keepAlive: KEEP_ALIVE_MS,
  connectionName: 'nestjs-redlock',
  connectTimeout: 2_000,
  // Milliseconds for which a closed client waits until the server closes its side. The value is small, because this
  // timer keeps the process alive, even if there is no connection. Commands that are already written are sent in any
  // case.
  disconnectTimeout: 100,
  // The first delay is short: after a network has forgotten the connection, the server is there.
  retryStrategy: (times) => Math.min(10 + (times - 1) * 50, 1_000),
};

/** Makes a client for locks, without connecting it. */
export function openClient(node: string | RedisOptions): Redis {
  return typeof node === 'string'
    ? new Redis(node, { ...PREFERRED, ...FORCED })
    : new Redis({ ...PREFERRED, ...node, ...FORCED });
}

/** `true` if a command would be written to the socket immediately. Otherwise the client may queue the command (S15). */
export function canSendNow(client: Driver): boolean {
  return client.status === 'ready' && (client.stream?.writable ?? true);
}

/** The prefix that a client adds to the keys of its commands, but not to patterns, arguments and most channels. */
export function keyPrefixOf({ options }: { readonly options: DriverOptions }): string {
  return options.keyPrefix ?? '';
}

/** The client's address, without credentials. For a Cluster and for Sentinels it is the first given address. */
export function addressOf(client: Driver | Server): string {
  if ('address' in client && client.address !== undefined) return client.address;
  if ('isCluster' in client && client.isCluster) {
    const [first = ''] = (client as unknown as { startupNodes: (RedisOptions | string | number)[] })
      .startupNodes;
    return `cluster ${addressOf(openClient(typeof first === 'object' ? first : String(first)))}`;
  }
  const { path, sentinels, name, host, port, db } = client.options as RedisOptions;
  if (path) return path;
  if (sentinels) {
    const [first] = sentinels;
    return `sentinel:${name ?? ''} via ${first?.host ?? 'localhost'}:${first?.port ?? 26_379}`;
  }
  return `${host ?? 'localhost'}:${port ?? 6379}${db ? `/${db}` : ''}`;
}

/**
 * Makes a name for a client, different from all `taken` names, and adds it to them: metrics need a distinct name for
 * each node.
 */
export function nameOf(client: Driver, taken: Set<string>): string {
  const address = addressOf(client);
  let name = address;
  for (let count = 2; taken.has(name); count++) name = `${address} (${count})`;
  taken.add(name);
  return name;
}
