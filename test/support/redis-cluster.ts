import { type RedisServer, startRedis } from './redis-server.js';
import { until } from './until.js';

const SLOTS = 16_384;

/**
 * Starts the masters of a Cluster, which get equal shares of the slots. Each list in `args` contains the further
 * arguments of one master.
 */
export async function startMasters(...args: readonly (readonly string[])[]): Promise<RedisServer[]> {
  const servers = await Promise.all(args.map((its) => startClusterServer(its)));
  const share = Math.ceil(SLOTS / servers.length);
  for (const [index, server] of servers.entries()) {
    const client = server.client();
    await client.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
    const last = Math.min((index + 1) * share, SLOTS) - 1;
    await client.call('CLUSTER', 'ADDSLOTSRANGE', index * share, last);
  }
  await meet(servers);
  return servers;
}

/** Starts a server that has not joined a Cluster yet. */
export function startClusterServer(args: readonly string[]): Promise<RedisServer> {
  const ours = ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'];
  // With replica migration, a master would become a replica when its last slot is moved away.
  return startRedis({ args: [...ours, '--cluster-allow-replica-migration', 'no', ...args] });
}

/** Adds a replica of the master to the Cluster. Resolves when the replica has the data of the master. */
export async function addReplica(masters: readonly RedisServer[], master: RedisServer): Promise<RedisServer> {
  // By default the master waits five seconds for more replicas.
  await master.client().config('SET', 'repl-diskless-sync-delay', 0);
  const replica = await startClusterServer([]);
  await meet([...masters, replica]);
  const id = String(await master.client().call('CLUSTER', 'MYID'));
  await replica.client().call('CLUSTER', 'REPLICATE', id);
  await until(async () => (await master.client().info('replication')).includes('state=online'));
  return replica;
}

/** Makes the servers one Cluster. Resolves when each server knows all others. */
export async function meet(servers: readonly RedisServer[]): Promise<void> {
  const clients = servers.map((server) => server.client());
  // Each server meets each other server directly, because gossip takes longer.
  for (const [index, client] of clients.entries()) {
    for (const { host, port } of servers.slice(index + 1)) await client.call('CLUSTER', 'MEET', host, port);
  }
  for (const client of clients) {
    const lines = async (): Promise<string> => String(await client.call('CLUSTER', 'NODES'));
    await until(async () => (await lines()).split(' connected').length > servers.length);
    await until(async () => String(await client.call('CLUSTER', 'INFO')).includes('cluster_state:ok'));
  }
}

/** Begins to move the hash slot of a Redis key to another master, as `redis-cli --cluster reshard` does. No key moves. */
export async function beginSlotMove(from: RedisServer, to: RedisServer, redisKey: string): Promise<void> {
  const [source, target] = [from.client(), to.client()];
  const slot = Number(await source.call('CLUSTER', 'KEYSLOT', redisKey));
  await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(await source.call('CLUSTER', 'MYID')));
  await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(await target.call('CLUSTER', 'MYID')));
}

/** Ends the move of the hash slot of a Redis key, all keys of which have moved. */
export async function endSlotMove(from: RedisServer, to: RedisServer, redisKey: string): Promise<void> {
  const [source, target] = [from.client(), to.client()];
  const slot = Number(await source.call('CLUSTER', 'KEYSLOT', redisKey));
  const id = String(await target.call('CLUSTER', 'MYID'));
  for (const client of [target, source]) await client.call('CLUSTER', 'SETSLOT', slot, 'NODE', id);
}
