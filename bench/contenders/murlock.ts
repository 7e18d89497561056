import { importPeer } from '../peers.js';
import { type Contender, holdInside, type Release } from './contender.js';

interface MurLockService {
  runWithLock<T>(key: string, ttl: number, wait: number, task: () => Promise<T>): Promise<T>;
}

interface Package {
  readonly MurLockModule: { forRoot(options: object): object };
  readonly MurLockService: new () => MurLockService;
}

interface Nest {
  readonly NestFactory: {
    createApplicationContext(
      module: object,
      options: object,
    ): Promise<{ get<T>(token: new () => T): T; close(): Promise<void> }>;
  };
}

export const murlock: Contender = {
  name: 'murlock',
  packages: ['murlock', 'redis'],
  quorum: false,
  sends: [],
  lacks: [
    'one node only, no fencing token, no renewal, no signal',
    'sends the whole script each time (EVAL)',
    'waits by polling, longer after each attempt (1 s, 2 s, ... in its README)',
  ],
  async open([url]) {
    const { MurLockModule, MurLockService } = await importPeer<Package>('murlock');
    const { NestFactory } = await importPeer<Nest>('@nestjs/core');
    // The settings are those of the library's README, except for the number of attempts.
    const options = { redisOptions: { url }, wait: 1_000, maxAttempts: 1_000, logLevel: 'error' };
    const app = await NestFactory.createApplicationContext(MurLockModule.forRoot(options), {
      logger: false,
    });
    const locks = app.get(MurLockService);
    const acquire = (key: string, ttl: number): Promise<Release> =>
      holdInside(
        (task) => locks.runWithLock(key, ttl, 1_000, () => task(undefined)),
        () => undefined,
      );
    return {
      acquire,
      withLock: (key, ttl, task) => locks.runWithLock(key, ttl, 1_000, task),
      wait: acquire,
      close: () => app.close(),
    };
  },
};
