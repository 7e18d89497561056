import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisServer } from '../../support/redis-server.js';
import { countOf, type Play, refusals, repeat, type Scenario, some } from '../scenario.js';

const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];
/** A little more than the ttl of the clients. */
const GUARD = 2_100;

/** Kills the servers, and restarts them after a time. They lose their data unless they started with persistence. */
export async function crash(servers: readonly RedisServer[], downFor: number): Promise<void> {
  await Promise.all(servers.map((server) => server.kill()));
  await sleep(downFor);
  await Promise.all(servers.map((server) => server.restart()));
}

export const crashes: readonly Scenario[] = [
  {
    name: 'no faults',
    stage: { nodes: 5 },
    clients: 10,
    seconds: [2, 30],
    leastRate: 30,
  },
  {
    name: 'SIGKILL of two of five nodes every 2 s, persistent, restart guard off (S13)',
    stage: { nodes: 5, nodeArgs: DURABLE },
    clients: 10,
    seconds: [4, 30],
    leastRate: 25,
    faults: (play) => repeat(play, 1_600, () => crash(some(2, play.stage.servers), 200)),
  },
  {
    name: 'SIGKILL of two of five nodes every 2 s, data lost, restart guard on (S12)',
    essential: true,
    stage: { nodes: 5 },
    clients: 10,
    client: { module: { restartGuard: GUARD } },
    seconds: [4, 30],
    leastRate: 25,
    faults: (play) => repeat(play, 1_600, () => crash(play.stage.servers.slice(0, 2), 200)),
  },
  {
    name: 'SIGKILL of each node in turn every 2 s, data lost, restart guard on (S12)',
    onlyLong: true,
    stage: { nodes: 5 },
    clients: 6,
    client: { module: { restartGuard: GUARD } },
    seconds: [4, 30],
    faults: (play) => repeat(play, 1_800, (turn) => crash([play.stage.servers[turn % 5]!], 100)),
  },
  {
    name: 'SIGKILL of a client that holds the lock',
    stage: { nodes: 3 },
    clients: 6,
    client: { ttl: 1_000, leastHold: 50, hold: 100 },
    seconds: [2, 10],
    async faults({ stage, over }) {
      for (let victim = 0; victim < 3 && !(await over()); victim++) {
        await (await stage.holder()).kill();
        await stage.acquired(countOf(await stage.events(), 'return') + 1);
      }
    },
  },
  {
    name: 'LOADING: a node reads its data after a restart',
    // test/stores/redis/loading.test.ts covers such a node in the short form.
    onlyLong: true,
    stage: {
      nodes: 3,
      nodeArgs: [...DURABLE, '--key-load-delay', '3000', '--loading-process-events-interval-bytes', '1024'],
    },
    clients: 4,
    seconds: [2, 10],
    async before({ servers }) {
      const filler = 'x'.repeat(4_096);
      await Promise.all(
        servers.map(async (server) => {
          const pipeline = server.client().pipeline();
          for (let i = 0; i < 300; i++) pipeline.set(`filler:${i}`, filler);
          await pipeline.exec();
        }),
      );
    },
    faults: (play) => repeat(play, 300, (turn) => crash([play.stage.servers[turn % 3]!], 0)),
  },
  {
    name: 'a majority of the nodes forgets a held lock, restart guard on (S12)',
    stage: { nodes: 3 },
    clients: 3,
    client: {
      ttl: 3_000,
      renew: false,
      leastHold: 2_500,
      hold: 2_500,
      // Clients retry often: a sleeping waiter would not notice that the nodes have forgotten the lock.
      retry: { attempts: 1_000, timeout: 1_000 },
      module: { restartGuard: 3_100 },
    },
    seconds: [2, 10],
    faults: forgetHeldLocks,
    enough: (events) => refusals(events, 'LOCK_UNAVAILABLE') > 0,
  },
];

/** Restarts a majority of the nodes, without their data, while a client holds the lock. */
export async function forgetHeldLocks({ stage, over }: Play): Promise<void> {
  do {
    await stage.holder();
    await crash(stage.servers.slice(0, 2), 0);
    await sleep(1_000);
  } while (!(await over()));
}
