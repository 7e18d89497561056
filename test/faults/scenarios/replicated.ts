import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../support/until.js';
import type { Deployment, DeploymentKind, FailOver } from '../deployments.js';
import type { Library } from '../passed-in.js';
import { countOf, type Play, repeat, type Scenario } from '../scenario.js';
import type { ClientOptions } from '../stage.js';

// These scenarios have one node: a Cluster, or a master that a Sentinel watches. The application passes the client of
// this node in. A fail-over keeps the locks that the replica has (docs/choosing-nodes.md).

/** A kind of client, as an application makes it. */
interface Kind {
  readonly name: string;
  readonly library: Library;
  readonly each: DeploymentKind;
}

const NODE_REDIS: readonly Kind[] = [
  { name: 'createCluster of node-redis', library: 'node-redis', each: 'cluster' },
  { name: 'createSentinel of node-redis', library: 'node-redis', each: 'sentinel' },
];

const IOREDIS: readonly Kind[] = [
  { name: 'Cluster of ioredis', library: 'ioredis', each: 'cluster' },
  { name: 'Redis of ioredis with Sentinels', library: 'ioredis', each: 'sentinel' },
];

const GLIDE: Kind = { name: 'GlideClusterClient', library: 'Valkey GLIDE', each: 'cluster' };

export const replicated: readonly Scenario[] = [
  ...NODE_REDIS.flatMap(scenariosOf),
  // The other scenarios wait for a connection for messages, which a Cluster of GLIDE has not.
  ...scenariosOf(GLIDE).filter(({ name }) => name.endsWith('connections cut in flight')),
  ...IOREDIS.flatMap(scenariosOf).map((scenario) => ({ ...scenario, onlyLong: true })),
];

function scenariosOf({ name, library, each }: Kind): Scenario[] {
  const base = { stage: { nodes: 1, each }, clients: 4 } as const;
  const client: ClientOptions = {
    passesIn: library,
    // In a Cluster, `k` is on one master and `a` on the other.
    wants: [{ keys: ['k'] }, { keys: ['k'] }, { keys: ['a'] }],
  };
  /**
   * Holds are longer than a fail-over, so that a lock continues on the new master. They are longest with Sentinels,
   * which begin a fail-over late.
   */
  const long = each === 'cluster' ? { leastHold: 500, hold: 1_500 } : { leastHold: 3_000, hold: 4_000 };
  const through: ClientOptions = { ...client, ...long, ttl: 8_000 };
  return [
    {
      ...base,
      name: `${name}: connections cut in flight`,
      client: { ...client, ttl: 3_000 },
      seconds: [2, 10],
      // The short form plays this fault with a Cluster only: a Sentinel names the same master again.
      onlyLong: each === 'sentinel',
      // A Sentinel client of node-redis looks for the master at most once a second.
      faults: async (play) => {
        await repeat(play, each === 'cluster' ? 200 : 1_200, () => cutConnections(play));
        if (each === 'sentinel') await subscribed(deploymentOf(play), play.stage.clients.length);
      },
      enough: (events) => countOf(events, 'return') > 5,
    },
    {
      ...base,
      name: `${name}: SIGSTOP of the master beyond the ttl`,
      client: { ...client, ttl: 800, leastHold: 1_500, hold: 1_500 },
      seconds: [2, 20],
      // The master does not change, so the client behaves as with a single server.
      onlyLong: true,
      faults: (play) => repeat(play, 500, () => pauseMaster(play)),
      enough: (events) => countOf(events, 'lost') > 0,
    },
    {
      ...base,
      name: `${name}: SIGKILL of a client that holds the lock`,
      client: { ...client, ttl: 1_000, leastHold: 50, hold: 100 },
      seconds: [1, 10],
      // The fault concerns no server: scenarios/crashes.ts plays it in the short form.
      onlyLong: true,
      faults: killHolders,
    },
    {
      ...base,
      client: through,
      name: `${name}: SIGKILL of the master, whose replica has every lock`,
      seconds: [1, 10],
      faults: (play) => failOver(play, 'in step'),
    },
    {
      ...base,
      client: through,
      name: `${name}: SIGKILL of the master at any moment`,
      seconds: [1, 10],
      onlyLong: true,
      overlapsBecause: 'the replica may lack the lock',
      faults: (play) => failOver(play, 'sudden'),
    },
    {
      ...base,
      client: through,
      name: `${name}: a requested fail-over`,
      seconds: [1, 10],
      onlyLong: true,
      // In a Cluster the replica first catches up. With Sentinels the old master stays a master for about ten seconds,
      // beside the new one.
      ...(each === 'sentinel' && { overlapsBecause: 'two masters for a while' }),
      faults: (play) => failOver(play, 'requested'),
    },
  ];
}

function deploymentOf({ stage }: Play): Deployment {
  return stage.deployments[0]!;
}

/** Makes the master close the connections of all clients, including the connections for messages. */
async function cutConnections(play: Play): Promise<void> {
  const looker = deploymentOf(play).master.client();
  for (const type of ['normal', 'pubsub']) await looker.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
  looker.disconnect();
}

/**
 * Waits until all clients have their connection for messages to the master. If the master dies earlier, node-redis goes
 * on connecting to the address of the dead master, and keeps the client's process alive until a server at that address
 * answers (seen with `createSentinel` of 6.3). If such a client is destroyed while it looks for its master again, its
 * process does not end by itself either (seen twice on a busy machine).
 */
async function subscribed({ master }: Deployment, clients: number): Promise<void> {
  const looker = master.client();
  /** The ids of connections that had a subscription. On a Cluster a process has one only while it waits. */
  const seen = new Set<string>();
  await until(async () => {
    const open = new Set<string>();
    for (const line of String(await looker.client('LIST')).split('\n')) {
      const [id = ''] = line.split(' ', 1);
      open.add(id);
      if (/ (sub|ssub)=[1-9]/.test(line) && !line.includes('name=sentinel')) seen.add(id);
    }
    return [...seen].filter((id) => open.has(id)).length >= clients;
  }, 120_000);
}

async function pauseMaster(play: Play): Promise<void> {
  const { master } = deploymentOf(play);
  master.pause();
  await sleep(1_200);
  master.resume();
}

async function killHolders({ stage, over }: Play): Promise<void> {
  for (let victim = 0; victim < 2 && !(await over()); victim++) {
    await (await stage.holder()).kill();
    await stage.acquired(countOf(await stage.events(), 'return') + 1);
  }
}

/** Fails over while a client holds the lock; waits until clients acquire it on the new master. */
async function failOver(play: Play, how: FailOver): Promise<void> {
  const { stage } = play;
  const deployment = deploymentOf(play);
  await subscribed(deployment, stage.clients.length);
  await stage.holder();
  await deployment.failOver(how);
  await stage.acquired(countOf(await stage.events(), 'return') + 2);
  if (how !== 'requested') return;
  // Locks that nobody releases stay on the old master until it is a replica.
  const looker = deployment.master.client();
  await until(async () => (await looker.info('replication')).includes('role:slave'), 90_000);
}
