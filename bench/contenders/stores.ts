import { setTimeout as sleep } from 'node:timers/promises';
import { etcd } from '../../lib/etcd/index.js';
import { mysql } from '../../lib/mysql/index.js';
import { postgres } from '../../lib/postgres/index.js';
import { zookeeper } from '../../lib/zookeeper/index.js';
import type { RedlockModuleOptions } from '../../lib/index.js';
import { importPeer } from '../peers.js';
import type { Release, Session } from './contender.js';

/** Addresses of the stores. */
export interface StoreUrls {
  readonly redis: string;
  readonly postgres: string;
  /** URL of etcd; missing if there is no `etcd` on the PATH. */
  readonly etcd: string | undefined;
}

/** A library that locks in a store. */
export interface StoreWay {
  readonly name: string;
  /** True if the locks of two sessions exclude each other. False in memory: each session has a store of its own. */
  readonly isShared: boolean;
  /** True if a session can hold thousands of locks at a time. */
  readonly holdsMany: boolean;
  open(urls: StoreUrls): Promise<Pick<Session, 'acquire' | 'wait' | 'hold' | 'close'>>;
}

/**
 * Time limit of our stores for a request, in milliseconds. The default is a twentieth of the ttl, which is too short for
 * hundreds of locks at a time where each is a request of its own, and on a busy machine.
 */
const NODE_TIMEOUT = 2_000;

async function ours(nodes: RedlockModuleOptions['nodes']): Promise<Session> {
  const { openOurs } = await import('./ours-app.js');
  return openOurs(nodes, {}, false, NODE_TIMEOUT);
}

export const OUR_STORES: readonly StoreWay[] = [
  { name: 'ours in memory', isShared: false, holdsMany: true, open: () => ours('memory') },
  { name: 'ours in Redis', isShared: true, holdsMany: true, open: ({ redis }) => ours(redis) },
  {
    name: 'ours in PostgreSQL',
    isShared: true,
    holdsMany: true,
    open: (urls) => ours(postgres({ connectionString: urls.postgres })),
  },
];

/** The locks of this package in a MySQL or MariaDB. */
export function oursInMysql(name: string, uri: string): StoreWay {
  return { name: `ours in ${name}`, isShared: true, holdsMany: true, open: () => ours(mysql({ uri })) };
}

export const oursInEtcd: StoreWay = {
  name: 'ours in etcd',
  isShared: true,
  holdsMany: true,
  open: (urls) => ours(etcd({ endpoints: urls.etcd ?? '' })),
};

/** The locks of this package in a ZooKeeper. */
export function oursInZooKeeper(connectionString: string): StoreWay {
  return {
    name: 'ours in ZooKeeper',
    isShared: true,
    holdsMany: true,
    open: () => ours(zookeeper({ connectionString })),
  };
}

/** The exports of the package `advisory-lock`, which is CommonJS. */
interface AdvisoryLock {
  readonly default: (url: string) => (name: string) => {
    tryLock(): Promise<Release | undefined>;
    lock(): Promise<Release>;
  };
}

/** Session advisory locks: each held lock and each waiter has its own connection. */
export const advisoryLock: StoreWay = {
  name: 'advisory-lock, PostgreSQL',
  isShared: true,
  holdsMany: false,
  open: async (urls) => {
    const mutexOf = (await importPeer<AdvisoryLock>('advisory-lock')).default(urls.postgres);
    return {
      acquire: async (key) => {
        const release = await mutexOf(key).tryLock();
        if (!release) throw new Error(`${key} is held`);
        return release;
      },
      wait: (key) => mutexOf(key).lock(),
      // The library does not tell when its connections have ended.
      close: () => sleep(200),
    };
  },
};
