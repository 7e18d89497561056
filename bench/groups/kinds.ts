import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { KINDS, permitsKey, sharedKey } from '../contenders/kinds.js';
import type { Package } from '../contenders/redis-semaphore.js';
import { redisSemaphore, redisSemaphorePermits } from '../contenders/redis-semaphore.js';
import type { Contender } from '../contenders/contender.js';
import { type Figures, once } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { importPeer } from '../peers.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, nodesTitle, type Plan, progress, withThree } from './group.js';
import { latencyTable } from './latency.js';
import { serverTimeTable } from './server-time.js';
import { withStaff } from './sessions.js';
import { throughputTable } from './throughput.js';

const LONG = 60_000;
const SHORT = 1_000;
/** Longer than the short one, by more than a busy machine is late. */
const LATER = 1_500;

const NOTES = [
  'Each lock on a key of its own, which nobody else holds, but where it says that all have the same key. A lock with permits',
  'has a slot and a token of its own; a semaphore of redis-semaphore has neither, and on several nodes each counts by itself.',
];

/** A permit and a shared lock beside an exclusive one. */
export const kinds: Group = {
  name: 'kinds',
  about: 'a permit and a shared lock beside an exclusive one of ours; semaphores of redis-semaphore',
  async run(plan) {
    const tables: ResultTable[] = [];
    const theirs = plan.contenders.includes(redisSemaphore) ? [redisSemaphorePermits] : [];
    const contenders = [...KINDS, ...theirs];
    for (const nodes of withThree(plan)) {
      progress(nodesTitle(nodes));
      await withStaff(nodes, contenders, async (staff, servers) => {
        const title = nodesTitle(nodes);
        const latency = await latencyTable(
          `Kinds of lock, one after the other, ${title}, us`,
          staff,
          servers,
          plan,
        );
        tables.push(
          { ...latency, notes: NOTES },
          await throughputTable(`Kinds of lock, 64 in flight, ${title}`, staff, servers, plan),
          await serverTimeTable(
            `Kinds of lock, server time, ${title}, us, of each node`,
            // It takes more locks than there are permits, and holds them all.
            staff.filter(({ contender }) => contender !== sharedKey && contender !== permitsKey),
            servers,
            plan,
          ),
        );
      });
    }
    tables.push(await withOtherTimeouts(plan));
    return { tables };
  },
};

/** One permit of a semaphore: its release, or `undefined` when it was refused. */
type Take = (key: string, permits: number, ttl: number) => Promise<(() => Promise<unknown>) | undefined>;

/**
 * What becomes of a permit of a minute when another process asks for one of a second: by the purge of another lockTimeout, or
 * by an expiry of all.
 */
async function withOtherTimeouts({ contenders }: Plan): Promise<ResultTable> {
  progress('another lockTimeout');
  const servers = await Servers.start(1);
  try {
    const rows = new Map<string, ReturnType<typeof once>>();
    const ways: readonly (readonly [Contender['name'], Opening])[] = [
      ['ours', openOurs],
      ...(contenders.includes(redisSemaphore) ? [['redis-semaphore', openTheirs] as const] : []),
    ];
    for (const [name, open] of ways) {
      const { take, close } = await open(servers.urls);
      rows.set(name, once(await holdersOf(take)));
      await close();
    }
    return tableOf(rows);
  } finally {
    await servers.stop();
  }
}

function tableOf(rows: Figures): ResultTable {
  return {
    title: 'Permits of a minute beside permits of a second, one node',
    rows,
    columns: [
      { figure: 'ofOne', title: 'holders of one permit', digits: 0 },
      { figure: 'ofTwo', title: 'holders of two permits', digits: 0 },
    ],
    notes: [
      `One permit: it is held for ${LONG / 1_000} s, and ${LATER / 1_000} s later somebody asks for it for ${SHORT / 1_000} s. Two permits: held for ${LONG / 1_000} s and for`,
      `${SHORT / 1_000} s, and ${LATER / 1_000} s later two more ask. redis-semaphore purges by the lockTimeout of whoever asks, and gives the whole key that expiry.`,
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
    // The one of a second is over by now.
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
  const { Semaphore } = await importPeer<Package>('redis-semaphore');
  const client = new Redis(urls[0] ?? '');
  return {
    take: async (key, permits, ttl) => {
      const options = { lockTimeout: ttl, acquireAttemptsLimit: 1, refreshInterval: 0 };
      const semaphore = new Semaphore(client, key, permits, options);
      return semaphore.acquire().then(
        () => () => semaphore.release(),
        () => undefined,
      );
    },
    close: () => Promise.resolve(client.disconnect()),
  };
}
