import { importPeer } from '../peers.js';
import type { Contender, Release } from './contender.js';

interface Client {
  connect(): Promise<unknown>;
  on(event: 'error', listener: () => void): unknown;
  destroy(): void;
}

interface Lock {
  readonly isValid: boolean;
  release(): Promise<boolean>;
  startAutoExtension(threshold: number): void;
}

interface Package {
  readonly RedlockService: new (
    clients: Client[],
    options?: object,
  ) => {
    acquire(key: string, ttl: number): Promise<Lock | null>;
    withLock(key: string, ttl: number, task: () => Promise<void>, options?: object): Promise<void>;
  };
}

export const nestjsRedisLock: Contender = {
  name: '@nestjs-redis/lock',
  packages: ['@nestjs-redis/lock', '@redis-kit/lock', 'redis'],
  quorum: true,
  sends: [],
  lacks: [
    'no fencing token, no time limit for a node that hangs, no signal',
    'renews only where the code asks for it; its decorator does not renew',
    'sends the whole script each time (EVAL)',
    'waits by polling, every 200 ms with 100 ms of jitter, and waits for all nodes each time',
  ],
  async open(urls) {
    const { RedlockService } = await importPeer<Package>('@nestjs-redis/lock');
    const { createClient } = await importPeer<{ createClient(options: object): Client }>('redis');
    const clients = urls.map((url) => createClient({ url }));
    const quorum = Math.floor(clients.length / 2) + 1;
    await new Promise<void>((resolve) => {
      let ready = 0;
      for (const client of clients) {
        client.on('error', () => undefined);
        void client.connect().then(() => ++ready === quorum && resolve());
      }
    });
    const once = new RedlockService(clients, { maxRetryAttempts: 0 });
    const waiting = new RedlockService(clients, { maxRetryAttempts: 100_000 });
    const threshold = (ttl: number): number => Math.min(1_000, Math.round(ttl / 2));
    const releaseOf = (lock: Lock | null): Release => {
      if (!lock) throw new Error('held');
      return () => lock.release();
    };
    return {
      acquire: async (key, ttl) => releaseOf(await once.acquire(key, ttl)),
      withLock: (key, ttl, task) => once.withLock(key, ttl, task, { extensionThresholdMs: threshold(ttl) }),
      wait: async (key, ttl) => releaseOf(await waiting.acquire(key, ttl)),
      // The library does not report a lost lock; only `isValid` shows that the time of the lock is over.
      async hold(key, ttl) {
        const lock = await once.acquire(key, ttl);
        lock?.startAutoExtension(threshold(ttl));
        return releaseOf(lock);
      },
      close() {
        for (const client of clients) client.destroy();
        return Promise.resolve();
      },
    };
  },
};
