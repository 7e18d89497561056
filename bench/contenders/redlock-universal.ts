import { Redis } from 'ioredis';
import { importPeer } from '../peers.js';
import { type Contender, holdInside } from './contender.js';

interface Lock {
  acquire(): Promise<object>;
  release(handle: object): Promise<unknown>;
  using(task: (signal: AbortSignal) => Promise<void>): Promise<unknown>;
}

interface Package {
  readonly IoredisAdapter: new (client: Redis) => object;
  createLock(options: object): Lock;
  createRedlock(options: object): Lock;
}

export const redlockUniversal: Contender = {
  name: 'redlock-universal',
  packages: ['redlock-universal', 'ioredis'],
  quorum: true,
  sends: ['set'],
  lacks: ['no fencing token', 'waits by polling, every 100 ms on one node and every 200 ms on several'],
  async open(urls) {
    const { IoredisAdapter, createLock, createRedlock } = await importPeer<Package>('redlock-universal');
    const clients = urls.map((url) => new Redis(url));
    for (const client of clients) client.on('error', () => undefined);
    const adapters = clients.map((client) => new IoredisAdapter(client));
    const lockOf = (key: string, ttl: number, retryAttempts: number): Lock => {
      const options = { key, ttl, retryAttempts };
      return adapters.length === 1
        ? createLock({ ...options, adapter: adapters[0] })
        : createRedlock({ ...options, adapters });
    };
    const acquire = async (lock: Lock) => {
      const handle = await lock.acquire();
      return () => lock.release(handle);
    };
    return {
      acquire: (key, ttl) => acquire(lockOf(key, ttl, 0)),
      withLock: (key, ttl, task) => lockOf(key, ttl, 0).using(() => task()),
      wait: (key, ttl) => acquire(lockOf(key, ttl, 100_000)),
      hold: (key, ttl, lost) => holdInside((task) => lockOf(key, ttl, 0).using(task), lost),
      close() {
        for (const client of clients) client.disconnect();
        return Promise.resolve();
      },
    };
  },
};
