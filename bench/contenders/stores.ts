import { setTimeout as sleep } from 'node:timers/promises';
import { etcd } from '../../lib/etcd/index.js';
import { postgres } from '../../lib/postgres/index.js';
import type { RedlockModuleOptions } from '../../lib/index.js';
import { importPeer } from '../peers.js';
import type { Release, Session } from './contender.js';

/** Addresses of the stores. */
export interface StoreUrls {
  readonly redis: string;
  readonly postgres: string;
  /** Missing where there is none on the PATH. */
  readonly etcd: string | undefined;
}

/** A store, and who locks in it. */
export interface StoreWay {
  readonly name: string;
  /** True if the locks of two sessions exclude each other; in memory there is one session. */
  readonly isShared: boolean;
  /** True if it can hold thousands of locks at a time. */
  readonly holdsMany: boolean;
  open(urls: StoreUrls): Promise<Pick<Session, 'acquire' | 'wait' | 'hold' | 'close'>>;
}

async function ours(nodes: RedlockModuleOptions['nodes'], nodeTimeout?: number): Promise<Session> {
  const { openOurs } = await import('./ours-app.js');
  return openOurs(nodes, {}, false, nodeTimeout);
}

/** Thousands of locks at once take etcd longer than a twentieth of their ttl, in milliseconds. */
const ETCD_TIMEOUT = 2_000;

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

export const oursInEtcd: StoreWay = {
  name: 'ours in etcd',
  isShared: true,
  holdsMany: true,
  open: (urls) => ours(etcd({ endpoints: urls.etcd ?? '' }), ETCD_TIMEOUT),
};

/** As the package declares them; in CommonJS. */
interface AdvisoryLock {
  readonly default: (url: string) => (name: string) => {
    tryLock(): Promise<Release | undefined>;
    lock(): Promise<Release>;
  };
}

/** Session advisory locks: a connection for each lock that is held or waited for. */
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
      // Its connections end without being waited for.
      close: () => sleep(200),
    };
  },
};
