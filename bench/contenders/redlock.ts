import { Redis } from 'ioredis';
import { importPeer } from '../peers.js';
import { type Contender, holdInside, type Session } from './contender.js';

interface Lock {
  release(): Promise<unknown>;
}

interface Redlock {
  acquire(keys: string[], ttl: number, settings?: object): Promise<Lock>;
  using(
    keys: string[],
    ttl: number,
    settings: object,
    task: (signal: AbortSignal) => Promise<void>,
  ): Promise<unknown>;
}

type RedlockClass = new (clients: Redis[], settings?: object) => Redlock;

/**
 * The defaults of the library, except for the number of attempts: by default a call waits for two seconds, which is too
 * short for the groups with many waiters.
 */
const WAITING = { retryCount: -1 };
const ONCE = { retryCount: 0 };

const LACKS = [
  'no fencing token, no time limit for a node that hangs',
  'with an even number of nodes, split votes never settle',
  'waits by polling, every 200 ms with 100 ms of jitter',
];

export const redlock: Contender = {
  name: 'redlock',
  packages: ['redlock', 'ioredis'],
  quorum: true,
  sends: [],
  lacks: LACKS,
  async open(urls) {
    const { default: Class } = await importPeer<{ default: RedlockClass }>('redlock');
    const clients = connect(urls);
    return sessionOf(new Class(clients), clients);
  },
};

export const nestRedlock: Contender = {
  name: '@anchan828/nest-redlock',
  over: 'redlock',
  packages: ['@anchan828/nest-redlock', 'redlock', 'ioredis'],
  quorum: true,
  sends: [],
  lacks: ['a decorator around redlock', ...LACKS],
  async open(urls) {
    const { RedlockService } = await importPeer<{ RedlockService: new (options: object) => Redlock }>(
      '@anchan828/nest-redlock',
    );
    const clients = connect(urls);
    // The settings are those of the library's README, except for the number of attempts.
    const settings = {
      driftFactor: 0.01,
      retryDelay: 200,
      retryJitter: 200,
      automaticExtensionThreshold: 500,
    };
    return sessionOf(new RedlockService({ clients, settings }), clients);
  },
};

function connect(urls: readonly string[]): Redis[] {
  return urls.map((url) => {
    const client = new Redis(url);
    client.on('error', () => undefined);
    return client;
  });
}

function sessionOf(locks: Redlock, clients: readonly Redis[]): Session {
  const renewedEarly = (ttl: number): object => ({
    ...ONCE,
    automaticExtensionThreshold: Math.min(500, ttl / 2),
  });
  return {
    async acquire(key, ttl) {
      const lock = await locks.acquire([key], ttl, ONCE);
      return () => lock.release();
    },
    withLock: (key, ttl, task) => locks.using([key], ttl, renewedEarly(ttl), () => task()),
    async wait(key, ttl) {
      const lock = await locks.acquire([key], ttl, WAITING);
      return () => lock.release();
    },
    hold: (key, ttl, lost) => holdInside((task) => locks.using([key], ttl, renewedEarly(ttl), task), lost),
    close() {
      for (const client of clients) client.disconnect();
      return Promise.resolve();
    },
  };
}
