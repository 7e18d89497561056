import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Driver, DriverOptions, Server } from './driver.js';

/** A client of ioredis. */
export type Client = Redis | Cluster;

/**
 * Settings of the connections that we open ourselves. A command of ours must run now or never: one that waits in a
 * queue, or is sent again after a cut, runs after its caller has given up and leaves a lock that nobody knows of
 * (S15).
 */
const FORCED: RedisOptions = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableAutoPipelining: false,
  stringNumbers: false,
  lazyConnect: true,
  // MasterWatch does it: a message that comes while the client is connecting would end it for good.
  failoverDetector: false,
};

/** Settings that the user's own override. */
const PREFERRED: RedisOptions = {
  connectionName: 'nestjs-redlock',
  connectTimeout: 2_000,
  // How long a client that is closed waits for the other side, with a timer that keeps the process alive, even where
  // there is no connection any more. What was written is sent all the same.
  disconnectTimeout: 100,
  retryStrategy: (times) => Math.min(times * 50, 1_000),
};

/** Makes a client for locks; it does not connect yet. */
export function openClient(node: string | RedisOptions): Redis {
  return typeof node === 'string'
    ? new Redis(node, { ...PREFERRED, ...FORCED })
    : new Redis({ ...PREFERRED, ...node, ...FORCED });
}

/** Whether a command would be written to the socket at once. Otherwise the client may queue it (S15). */
export function canSendNow(client: Driver): boolean {
  return client.status === 'ready' && (client.stream?.writable ?? true);
}

/** What a client puts before the keys of its commands by itself, but not before patterns, arguments and most channels. */
export function keyPrefixOf({ options }: { readonly options: DriverOptions }): string {
  return options.keyPrefix ?? '';
}

/** Where a client connects to, without credentials. A Cluster and Sentinels are told apart by the first address given. */
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

/** A name for a client that none of the `taken` has, and adds it to them: what is counted by name must not collapse. */
export function nameOf(client: Driver, taken: Set<string>): string {
  const address = addressOf(client);
  let name = address;
  for (let count = 2; taken.has(name); count++) name = `${address} (${count})`;
  taken.add(name);
  return name;
}
