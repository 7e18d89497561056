import type { Redis } from 'ioredis';
import { setFailOverAfter } from '../support/fail-over-after.js';
import { addReplica, startMasters } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { PATIENCE, startSentinelGroup } from '../support/sentinel-group.js';
import { until } from '../support/until.js';
import type { Target } from './passed-in.js';

// A node of a fault test: one server, or several that clients see as one node.

/** A way for a replica to become the master. */
export type FailOver =
  /** The master is killed as soon as the replica has every write. */
  | 'in step'
  /** The master is killed at any moment. Replication is asynchronous, so the replica may lack the last writes. */
  | 'sudden'
  /** An operator asks for the fail-over while the master runs. */
  | 'requested';

export interface Deployment {
  readonly target: Target;
  readonly servers: readonly RedisServer[];
  /** The master that has the key `k`. */
  readonly master: RedisServer;
  /** Makes the replica the master, and waits until the replica is the master. Works once. */
  failOver(how: FailOver): Promise<void>;
}

export type DeploymentKind = 'cluster' | 'sentinel';

export function startDeployment(kind: DeploymentKind): Promise<Deployment> {
  return kind === 'cluster' ? startCluster() : startSentinels();
}

/** Two masters, and a replica of the master that has the key `k`. */
async function startCluster(): Promise<Deployment> {
  const masters = await startMasters([], []);
  const [master] = masters as [RedisServer];
  const replica = await addReplica(masters, master);
  const looker = replica.client();
  return {
    target: { kind: 'cluster', servers: masters.map(({ host, port }) => ({ host, port })) },
    servers: [...masters, replica],
    master,
    async failOver(how) {
      if (how === 'requested') await looker.call('CLUSTER', 'FAILOVER');
      else {
        await killMaster(master, looker, how);
        // One master is left. It is not a majority, so it cannot elect the replica.
        await looker.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
      }
      await until(() => isMaster(looker), PATIENCE);
    },
  };
}

/** A master with a replica, and one Sentinel. */
async function startSentinels(): Promise<Deployment> {
  const group = await startSentinelGroup();
  const { master, replica, sentinels } = group;
  const looker = replica.client();
  const watcher = sentinels[0]!.client();
  // A paused master, or a busy machine, must not cause a fail-over.
  await setFailOverAfter(group, 600_000);
  return {
    target: {
      kind: 'sentinel',
      name: 'locks',
      sentinels: sentinels.map(({ host, port }) => ({ host, port })),
    },
    servers: [master, replica],
    master,
    async failOver(how) {
      if (how === 'requested') {
        // A Sentinel refuses a fail-over while it has no recent message from the replica.
        await until(() => succeeds(watcher.call('SENTINEL', 'FAILOVER', 'locks')), PATIENCE);
      } else {
        await killMaster(master, looker, how);
        await setFailOverAfter(group, 500);
      }
      await until(() => isMaster(looker), PATIENCE);
    },
  };
}

async function killMaster(master: RedisServer, replica: Redis, how: 'in step' | 'sudden'): Promise<void> {
  if (how === 'in step') {
    const looker = master.client();
    // The master executes no write from here on, so the replica catches up.
    await looker.call('CLIENT', 'PAUSE', '600000', 'WRITE');
    const written = await offsetIn(looker, 'master_repl_offset');
    await until(async () => (await offsetIn(replica, 'slave_repl_offset')) >= written, PATIENCE);
  }
  await master.kill();
}

async function offsetIn(client: Redis, name: string): Promise<number> {
  return Number(new RegExp(`${name}:(\\d+)`).exec(await client.info('replication'))?.[1]);
}

export async function isMaster(client: Redis): Promise<boolean> {
  return (await client.info('replication')).includes('role:master');
}

function succeeds(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}
