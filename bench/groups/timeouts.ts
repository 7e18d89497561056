import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { redisSemaphore, type Package } from '../contenders/redis-semaphore.js';
import { type Figures, once } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { importPeer } from '../peers.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, nodesTitle, type Plan, progress, withThree } from './group.js';

/** Ttl of a long permit in milliseconds; also the time for which a new node does not vote, see `Servers.oldEnough`. */
const LONG = 10_000;
const SHORT = 1_000;
/** Milliseconds until the next requests; longer than `SHORT`, with a margin for a busy machine. */
const LATER = 1_500;

/**
 * Measures whether a permit of ten seconds is lost when another process asks for a permit of one second. A
 * library loses it if the `lockTimeout` of the caller decides which permits of others have ended, or if the whole key
 * has one expiry.
 */
export const timeouts: Group = {
  name: 'timeouts',
  about: 'permits of ten seconds, while another process asks for permits of a second',
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of withThree(plan)) {
      progress(nodesTitle(nodes));
      tables.push(await onNodes(nodes, plan));
    }
    return { tables };
  },
};

async function onNodes(nodes: number, { contenders }: Plan): Promise<ResultTable> {
  const servers = await Servers.start(nodes);
  try {
    await servers.oldEnough();
    const rows = new Map<string, ReturnType<typeof once>>();
    const ways: readonly (readonly [string, Opening])[] = [
      ['ours', openOurs],
      ...(contenders.includes(redisSemaphore) ? [['redis-semaphore', openTheirs] as const] : []),
    ];
    for (const [name, open] of ways) {
      const { take, close } = await open(servers.urls);
      rows.set(name, once(await holdersOf(take)));
      await close();
    }
    return tableOf(rows, nodesTitle(nodes));
  } finally {
    await servers.stop();
  }
}

/** Takes a permit of a semaphore; resolves to its release, or to `undefined` when the permit was refused. */
type Take = (key: string, permits: number, ttl: number) => Promise<(() => Promise<unknown>) | undefined>;

function tableOf(rows: Figures, nodes: string): ResultTable {
  return {
    title: `Permits of ten seconds beside permits of a second, ${nodes}`,
    rows,
    columns: [
      { figure: 'ofOne', title: 'holders of one permit', digits: 0 },
      { figure: 'ofTwo', title: 'holders of two permits', digits: 0 },
    ],
    notes: [
      `One permit: it is held for ${LONG / 1_000} s, and ${LATER / 1_000} s later another process asks for it for ${SHORT / 1_000} s. Two permits: held for ${LONG / 1_000} s and for`,
      `${SHORT / 1_000} s, and ${LATER / 1_000} s later two more processes ask. redis-semaphore purges by the lockTimeout of the asking process, and gives the whole key this expiry.`,
    ],
  };
}

async function holdersOf(take: Take): Promise<{ ofOne: number; ofTwo: number }> {
  const long = await Promise.all([take('one', 1, LONG), take('two', 2, LONG)]);
  await take('two', 2, SHORT);
  await sleep(LATER);
  const later = [await take('one', 1, SHORT), await take('two', 2, LONG), await take('two', 2, LONG)];
  const count = (of: readonly unknown[]): number => of.filter((held) => held !== undefined).length;
  return {
    ofOne: count([long[0], later[0]]),
    // The permit of one second has ended by now.
    ofTwo: count([long[1], later[1], later[2]]),
  };
}

type Opening = (urls: readonly string[]) => Promise<{ take: Take; close: () => Promise<void> }>;

async function openOurs(urls: readonly string[]): ReturnType<Opening> {
  const { openService } = await import('../contenders/ours-app.js');
  const { locks, close } = await openService(urls);
  return {
    take: async (key, permits, ttl) => {
      const lock = await locks.tryAcquire(key, { permits, ttl, renew: false });
      return lock ? () => lock.release() : undefined;
    },
    close,
  };
}

async function openTheirs(urls: readonly string[]): ReturnType<Opening> {
  const { Semaphore, RedlockSemaphore } = await importPeer<Package>('redis-semaphore');
  const clients = urls.map((url) => new Redis(url));
  const [client] = clients;
  return {
    take: async (key, permits, ttl) => {
      const options = { lockTimeout: ttl, acquireAttemptsLimit: 1, refreshInterval: 0 };
      const semaphore =
        client && clients.length === 1
          ? new Semaphore(client, key, permits, options)
          : new RedlockSemaphore(clients, key, permits, options);
      return semaphore.acquire().then(
        () => () => semaphore.release(),
        () => undefined,
      );
    },
    close: () => Promise.resolve(clients.forEach((each) => each.disconnect())),
  };
}
