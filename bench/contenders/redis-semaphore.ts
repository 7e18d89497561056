import { Redis } from 'ioredis';
import { importPeer } from '../peers.js';
import type { Contender, Release, Session } from './contender.js';

/** A mutex, or a permit of a semaphore. */
export interface Mutex {
  acquire(): Promise<void>;
  release(): Promise<void>;
}

export interface Package {
  readonly Mutex: new (client: Redis, key: string, options: object) => Mutex;
  readonly RedlockMutex: new (clients: Redis[], key: string, options: object) => Mutex;
  readonly Semaphore: new (client: Redis, key: string, limit: number, options: object) => Mutex;
  readonly RedlockSemaphore: new (clients: Redis[], key: string, limit: number, options: object) => Mutex;
}

export const redisSemaphore: Contender = {
  name: 'redis-semaphore',
  packages: ['redis-semaphore', 'ioredis'],
  quorum: true,
  sends: ['set'],
  lacks: [
    'no fencing token, no time limit for a node that hangs',
    'waits by polling every 10 ms, without jitter: hands over fast, with 100 commands per second and waiter',
    'renews at 80 % of the ttl, so there is no time for a second attempt after a failed renewal',
  ],
  open: (urls) =>
    open(urls, ({ Mutex, RedlockMutex }, clients, key, options) => {
      const [client] = clients;
      return client && clients.length === 1
        ? new Mutex(client, key, options)
        : new RedlockMutex(clients, key, options);
    }),
};

const PERMITS = 5;

/** The semaphore of redis-semaphore, with as many permits as the locks of this package in `kinds.ts`. */
export const redisSemaphorePermits: Contender = {
  ...redisSemaphore,
  name: `redis-semaphore, ${PERMITS} permits`,
  sends: ['zrem'],
  lacks: [
    ...redisSemaphore.lacks,
    'on several nodes each node counts alone, so there can be more holders than permits',
  ],
  open: (urls) =>
    open(urls, ({ Semaphore, RedlockSemaphore }, clients, key, options) => {
      const [client] = clients;
      return client && clients.length === 1
        ? new Semaphore(client, key, PERMITS, options)
        : new RedlockSemaphore(clients, key, PERMITS, options);
    }),
};

async function open(
  urls: readonly string[],
  make: (library: Package, clients: Redis[], key: string, options: object) => Mutex,
): Promise<Session> {
  const library = await importPeer<Package>('redis-semaphore');
  const clients = urls.map((url) => new Redis(url));
  for (const client of clients) client.on('error', () => undefined);
  const acquire = async (key: string, options: object): Promise<Release> => {
    const mutex = make(library, clients, key, { onLockLost: () => undefined, ...options });
    await mutex.acquire();
    return () => mutex.release();
  };
  return {
    acquire: (key, ttl) => acquire(key, { lockTimeout: ttl, acquireAttemptsLimit: 1, refreshInterval: 0 }),
    async withLock(key, ttl, task) {
      const release = await acquire(key, { lockTimeout: ttl, acquireAttemptsLimit: 1 });
      try {
        await task();
      } finally {
        await release();
      }
    },
    wait: (key, ttl) => acquire(key, { lockTimeout: ttl, acquireTimeout: 120_000 }),
    tryFor: (key, ttl, budget) => acquire(key, { lockTimeout: ttl, acquireTimeout: budget }),
    hold: (key, ttl, lost) => acquire(key, { lockTimeout: ttl, acquireAttemptsLimit: 1, onLockLost: lost }),
    close() {
      for (const client of clients) client.disconnect();
      return Promise.resolve();
    },
  };
}
