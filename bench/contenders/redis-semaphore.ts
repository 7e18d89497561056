import { Redis } from 'ioredis';
import { importPeer } from '../peers.js';
import type { Contender, Release } from './contender.js';

interface Mutex {
  acquire(): Promise<void>;
  release(): Promise<void>;
}

interface Package {
  readonly Mutex: new (client: Redis, key: string, options: object) => Mutex;
  readonly RedlockMutex: new (clients: Redis[], key: string, options: object) => Mutex;
}

export const redisSemaphore: Contender = {
  name: 'redis-semaphore',
  packages: ['redis-semaphore', 'ioredis'],
  quorum: true,
  sends: ['set'],
  lacks: [
    'no fencing token, no time limit for a node that hangs',
    'waits by polling every 10 ms, without jitter: quick to hand over, at a hundred commands a second and waiter',
    'renews at 80 % of the ttl, so one renewal that fails is the last',
  ],
  async open(urls) {
    const { Mutex, RedlockMutex } = await importPeer<Package>('redis-semaphore');
    const clients = urls.map((url) => new Redis(url));
    for (const client of clients) client.on('error', () => undefined);
    const mutexOf = (key: string, options: object): Mutex => {
      const [client] = clients;
      return client && clients.length === 1
        ? new Mutex(client, key, options)
        : new RedlockMutex(clients, key, options);
    };
    const acquire = async (key: string, options: object): Promise<Release> => {
      const mutex = mutexOf(key, { onLockLost: () => undefined, ...options });
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
  },
};
