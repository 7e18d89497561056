import { type Cluster, Redis, type RedisOptions } from 'ioredis';

/** A client that commands can be sent with. */
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

/** Whether a command would be written to the socket at once. Otherwise ioredis may queue it (S15). */
export function canSendNow(client: Client): boolean {
  if (client.status !== 'ready') return false;
  return client.isCluster || ((client as Redis).stream?.writable ?? false);
}

/** What a client puts before the keys of its commands by itself, but not before patterns, arguments and most channels. */
export function keyPrefixOf(client: Client): string {
  return client.options.keyPrefix ?? '';
}

/** Where a client connects to, without credentials. A Cluster and Sentinels are told apart by the first address given. */
export function addressOf(client: Client): string {
  if (client.isCluster) {
    const [first = ''] = (client as unknown as { startupNodes: (RedisOptions | string | number)[] })
      .startupNodes;
    return `cluster ${addressOf(openClient(typeof first === 'object' ? first : String(first)))}`;
  }
  const { path, sentinels, name, host, port, db } = (client as Redis).options;
  if (path) return path;
  if (sentinels) {
    const [first] = sentinels;
    return `sentinel:${name ?? ''} via ${first?.host ?? 'localhost'}:${first?.port ?? 26_379}`;
  }
  return `${host ?? 'localhost'}:${port ?? 6379}${db ? `/${db}` : ''}`;
}

/** A name for a client that none of the `taken` has, and adds it to them: what is counted by name must not collapse. */
export function nameOf(client: Client, taken: Set<string>): string {
  const address = addressOf(client);
  let name = address;
  for (let count = 2; taken.has(name); count++) name = `${address} (${count})`;
  taken.add(name);
  return name;
}
