import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type DynamicModule, Injectable, Module, type ModuleMetadata, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { inspect } from 'node:util';
import { LINGER_MS } from '../../lib/core/store-times.js';
import {
  currentLock,
  InjectLockService,
  LockHeldError,
  LockInterceptor,
  LockService,
  LockUnavailableError,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { countLocks } from '../support/core.js';
import { freePort } from '../support/free-port.js';
import { LogLines } from '../support/log-lines.js';
import { PATIENT } from '../support/patience.js';
import { DURABLE, type RedisServer, startRedis, startRedisNodes } from '../support/redis-server.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { lockServiceToken } from '../../lib/service/lock-service-token.js';

interface Started {
  readonly lines: LogLines;
  readonly locks: LockService;
  get: <T>(token: Type<T> | string | symbol) => T;
  close(): Promise<void>;
}

const open = new Set<Started>();
afterEach(async () => {
  await Promise.all([...open].map((app) => app.close()));
});

async function start(metadata: ModuleMetadata | DynamicModule): Promise<Started> {
  const root = 'module' in metadata ? { imports: [metadata] } : metadata;
  @Module(root)
  class AppModule {}
  const lines = new LogLines();
  const app = await NestFactory.createApplicationContext(AppModule, { logger: lines, abortOnError: false });
  const started: Started = {
    lines,
    get locks() {
      return app.get(LockService);
    },
    get: (token) => app.get(token),
    close: () => {
      open.delete(started);
      return app.close();
    },
  };
  open.add(started);
  return started;
}

const memory: RedlockModuleOptions = { nodes: 'memory' };
const once = { retry: false } as const;

@Injectable()
class Service {
  @WithLock('key', { retry: false })
  async keys(): Promise<readonly string[] | undefined> {
    return currentLock()?.keys;
  }
}

let redis: RedisServer;
let looker: Redis;
beforeAll(async () => {
  redis = await startRedis(DURABLE);
  looker = redis.client();
});
afterAll(() => redis.stop());

/** Waits until the server has `count` connections of this library, because it may notice a closed connection late. */
async function connected(count: number): Promise<void> {
  const connections = async (): Promise<number> =>
    String(await looker.client('LIST')).split('name=nestjs-redlock').length - 1;
  await until(async () => (await connections()) === count);
}

describe('forRoot', () => {
  test('forRoot provides LockService and the dependencies of the decorator with the given options', async () => {
    const app = await start({
      imports: [
        RedlockModule.forRoot({
          ...PATIENT,
          nodes: redis.url,
          keyPrefix: 'my:',
          owner: 'me',
          defaults: { ttl: 43_210 },
        }),
      ],
      providers: [Service],
    });
    await expect(app.get(Service).keys()).resolves.toEqual(['key']);
    const lock = await app.locks.acquire('other');
    await expect(looker.get('my:{other}')).resolves.toMatch(
      new RegExp(`^H-${lock.fencingToken}:${lock.id}:\\d+:me$`),
    );
    const left = (await looker.pttl('my:{other}')) - LINGER_MS;
    expect(left).toBeGreaterThan(20_000);
    expect(left).toBeLessThanOrEqual(43_210);
    await lock.release();
    await expect(countLocks(looker)).resolves.toBe(0);
  });

  test('forRoot accepts several nodes as ioredis options', async () => {
    const nodes = await startRedisNodes(3);
    const app = await start(
      RedlockModule.forRoot({
        ...PATIENT,
        nodes: nodes.map(({ host, port }) => ({ host, port, db: 1 })),
        restartGuard: false,
      }),
    );
    const lock = await app.locks.acquire('key', once);
    const values = await Promise.all(nodes.map((node) => node.client({ db: 1 }).get('lock:{key}')));
    expect(values.filter((value) => value?.includes(lock.id)).length).toBeGreaterThanOrEqual(2);
    await lock.release();
    await app.close();
    await Promise.all(nodes.map((node) => node.stop()));
  });

  test('three new nodes refuse locks for the largest ttl, even if `minHold` is longer (S12)', async () => {
    const nodes = await startRedisNodes(3);
    const app = await start(
      RedlockModule.forRoot({
        ...PATIENT,
        nodes: nodes.map(({ url }) => url),
        defaults: { ttl: 12_000, minHold: 3_600_000 },
      }),
    );
    const refused = await app.locks.acquire('key', { retry: false }).catch((error: Error) => error.message);
    expect(refused).toMatch(/votes again in \d+ ms \(restartGuard\)/);
    expect(Number(/again in (\d+) ms/.exec(String(refused))?.[1])).toBeLessThanOrEqual(12_000);
    await app.close();
    await Promise.all(nodes.map((node) => node.stop()));
  });

  test.each<[string, number, RedlockModuleOptions['restartGuard'], number]>([
    ['one node that may forget locks at a restart', 1, undefined, 1],
    ['nothing when `restartGuard: false` accepts lost locks', 1, false, 0],
    ['nothing when `restartGuard: false` accepts lost locks', 2, false, 0],
    // The guard is on by default for three nodes. Without the guard, S13 requires nodes that forget no locks.
    ['each node that may forget locks, when the guard is off', 3, false, 3],
  ])(
    'start-up warns about %s (nodes: %d, `restartGuard`: %p)',
    async (_what, count, restartGuard, warnings) => {
      const nodes = await startRedisNodes(count);
      const urls = nodes.map(({ url }) => url);
      const guard = restartGuard === undefined ? {} : { restartGuard };
      const app = await start(RedlockModule.forRoot({ ...PATIENT, nodes: urls, ...guard }));
      await until(() => app.lines.of('warn').length === warnings);
      expect(app.lines.of('warn')).toEqual(
        Array.from({ length: warnings }, () =>
          expect.stringMatching(/a restart can forget locks.*`restartGuard: false` accepts this risk/),
        ),
      );
      await app.close();
      await Promise.all(nodes.map((node) => node.stop()));
    },
  );

  test('start-up logs nothing when there is no problem', async () => {
    const app = await start(RedlockModule.forRoot({ ...PATIENT, nodes: redis.url }));
    expect(app.lines.lines).toEqual([]);
  });
});

describe('forRootAsync', () => {
  @Injectable()
  class Config {
    createRedlockOptions(): RedlockModuleOptions {
      return memory;
    }
  }
  @Module({ providers: [Config], exports: [Config] })
  class ConfigModule {}

  test.each<[string, () => DynamicModule]>([
    ['useFactory', () => RedlockModule.forRootAsync({ useFactory: () => memory })],
    ['an asynchronous useFactory', () => RedlockModule.forRootAsync({ useFactory: async () => memory })],
    [
      'useFactory with imports and inject',
      () =>
        RedlockModule.forRootAsync({
          imports: [ConfigModule],
          inject: [Config],
          useFactory: (config: Config) => config.createRedlockOptions(),
        }),
    ],
    ['useClass', () => RedlockModule.forRootAsync({ useClass: Config })],
    ['useExisting', () => RedlockModule.forRootAsync({ imports: [ConfigModule], useExisting: Config })],
  ])('forRootAsync accepts %s', async (_name, module) => {
    const app = await start({ imports: [module()], providers: [Service] });
    await expect(app.get(Service).keys()).resolves.toEqual(['key']);
  });

  test('forRootAsync accepts `name` and `isGlobal` beside `useFactory`', async () => {
    @Injectable()
    class Named {
      constructor(@InjectLockService('billing') readonly locks: LockService) {}
    }
    const app = await start({
      imports: [RedlockModule.forRootAsync({ name: 'billing', isGlobal: true, useFactory: () => memory })],
      providers: [Named],
    });
    await expect(app.get(Named).locks.tryAcquire('key')).resolves.toMatchObject({ keys: ['key'] });
  });
});

describe('isGlobal', () => {
  @Module({ providers: [Service], exports: [Service] })
  class Feature {}

  test('`isGlobal` is on by default, so that other modules need no import of RedlockModule', async () => {
    const app = await start({ imports: [RedlockModule.forRoot(memory), Feature] });
    await expect(app.get(Service).keys()).resolves.toEqual(['key']);
  });

  test.each([false])(
    '`isGlobal: %p` makes start-up fail for a module that needs RedlockModule and does not import it',
    async (isGlobal) => {
      const module = RedlockModule.forRoot({ ...memory, isGlobal });
      await expect(start({ imports: [module, Feature] })).rejects.toThrow(/RedlockModule\.forRoot/);
    },
  );

  test('a module that imports RedlockModule can use LockService even with `isGlobal: false`', async () => {
    const app = await start({
      imports: [RedlockModule.forRoot({ ...memory, isGlobal: false })],
      providers: [Service],
    });
    await expect(app.get(Service).keys()).resolves.toEqual(['key']);
  });
});

describe('named instances', () => {
  @Injectable()
  class Both {
    constructor(
      readonly plain: LockService,
      @InjectLockService('billing') readonly billing: LockService,
    ) {}

    @WithLock('key', { retry: false })
    async inPlain(): Promise<boolean[]> {
      return [this.plain.current() !== undefined, this.billing.current() !== undefined];
    }

    @WithLock('key', { retry: false, instance: 'billing' })
    async inBilling(): Promise<boolean[]> {
      return [this.plain.current() !== undefined, this.billing.current() !== undefined];
    }
  }

  test('named instances of RedlockModule have separate locks and services', async () => {
    const app = await start({
      imports: [RedlockModule.forRoot(memory), RedlockModule.forRoot({ ...memory, name: 'billing' })],
      providers: [Both, { provide: 'made', useFactory: () => Reflect.construct(Both, []) as Both }],
    });
    const both = app.get(Both);
    const lock = await both.billing.acquire('key');
    await expect(both.inPlain()).resolves.toEqual([true, false]);
    await expect(both.inBilling()).rejects.toBeInstanceOf(LockHeldError);
    await lock.release();
    await expect(both.inBilling()).resolves.toEqual([false, true]);
  });

  test('each module instance locks the methods that name it, even of objects that Nest did not create', async () => {
    @Injectable()
    class Made {
      @WithLock('key', { retry: false })
      async plain(): Promise<unknown> {
        return currentLock()?.keys;
      }
      @WithLock('key', { retry: false, instance: 'billing' })
      async billing(): Promise<unknown> {
        return currentLock()?.keys;
      }
    }
    const app = await start({
      imports: [RedlockModule.forRoot(memory), RedlockModule.forRoot({ ...memory, name: 'billing' })],
      providers: [{ provide: 'made', useFactory: () => new Made() }],
    });
    await expect(app.get<Made>('made').plain()).resolves.toEqual(['key']);
    await expect(app.get<Made>('made').billing()).resolves.toEqual(['key']);
  });

  test('start-up fails if a provider needs the unnamed instance and only a named instance exists', async () => {
    const module = RedlockModule.forRoot({ ...memory, name: 'billing' });
    await expect(start({ imports: [module], providers: [Service] })).rejects.toThrow(
      /RedlockModule\.forRoot/,
    );
  });

  test('start-up refuses an unknown instance name, with advice to import a module with that name', async () => {
    @Injectable()
    class Injected {
      constructor(@InjectLockService('typo') readonly locks: LockService) {}
    }
    @Injectable()
    class Decorated {
      @WithLock('key', { instance: 'typo' })
      async run(): Promise<void> {}
    }
    const imports = [RedlockModule.forRoot(memory)];
    const needs = (what: string): string =>
      `${what} needs RedlockModule.forRoot({ nodes, name: 'typo' }) in the imports`;
    const messages: string[] = [];
    for (const provider of [Injected, Decorated]) {
      const { message } = await start({ imports, providers: [provider] }).then(
        () => new Error('it started'),
        (error: Error) => error,
      );
      messages.push(message);
    }
    expect(messages).toEqual([
      expect.stringContaining(needs("@InjectLockService('typo')")),
      expect.stringContaining(needs('@WithLock')),
    ]);
    expect(messages.join()).not.toContain('nestjs-redlock:');
  });

  test.each([[''], [7], [null]])('InjectLockService(%p) throws', (name) => {
    expect(() => Reflect.apply(InjectLockService, undefined, [name])).toThrow(
      `Expected \`name\` to be the \`name\` of a RedlockModule, got ${inspect(name)}`,
    );
  });
});

describe('start-up', () => {
  test.each([[undefined], ['billing']])(
    'start-up refuses two RedlockModules with the name %p',
    async (name) => {
      const extras = name === undefined ? {} : { name };
      const imports = [
        RedlockModule.forRoot({ ...memory, ...extras }),
        RedlockModule.forRoot({ ...memory, ...extras, keyPrefix: 'other:' }),
      ];
      await expect(start({ imports })).rejects.toThrow(
        /^RedlockModule is configured twice .*the locks of one configuration might not exclude the locks of the other/,
      );
    },
  );

  test('start-up refuses RedlockModule without `forRoot`', async () => {
    await expect(start({ imports: [RedlockModule] })).rejects.toThrow(
      'RedlockModule needs .forRoot({ nodes }) or .forRootAsync({ ... })',
    );
  });

  test('start-up refuses a Redis replica, and the error says why', async () => {
    const replica = await startRedis({ args: ['--replicaof', '127.0.0.1', '1'] });
    await expect(start(RedlockModule.forRoot({ nodes: replica.url }))).rejects.toThrow(
      /^Redis at \S+ cannot be used for locks: it is a replica, .*; give the master instead/,
    );
    await replica.stop();
  });
});

describe('two applications in one process', () => {
  test('two applications in one process share locks through Redis, and each closes only its own connections', async () => {
    const [one, two] = await Promise.all([
      start({ imports: [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url })], providers: [Service] }),
      start({ imports: [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url })], providers: [Service] }),
    ]);
    const lock = await one.locks.acquire('key');
    await expect(two.get(Service).keys()).rejects.toBeInstanceOf(LockHeldError);
    await one.close();
    await expect(lock.isHeld()).toBe(false);
    await expect(two.get(Service).keys()).resolves.toEqual(['key']);
    await expect(connected(1)).resolves.toBeUndefined();
  });

  test('two applications with nodes in memory have separate locks', async () => {
    const [one, two] = [
      await start(RedlockModule.forRoot(memory)),
      await start(RedlockModule.forRoot(memory)),
    ];
    await one.locks.acquire('key');
    await expect(two.locks.tryAcquire('key')).resolves.not.toBeNull();
  });

  test('two applications can use the same provider object one after the other', async () => {
    const object = new Service();
    const metadata = {
      imports: [RedlockModule.forRoot(memory)],
      providers: [{ provide: Service, useValue: object }],
    };
    await (await start(metadata)).close();
    await start(metadata);
    await expect(object.keys()).resolves.toEqual(['key']);
  });
});

describe("nodes: 'memory'", () => {
  test.each<[string, RedlockModuleOptions]>([
    ['as a string', { nodes: 'memory' }],
    ['in an array', { nodes: ['memory'] as unknown as 'memory' }],
  ])("`nodes: 'memory'`, given %s, warns once and locks within the process", async (_name, options) => {
    const app = await start(RedlockModule.forRoot(options));
    expect(app.lines.lines).toEqual([
      { level: 'warn', text: expect.stringMatching(/^nodes: 'memory' locks inside this process only/) },
    ]);
    const lock = await app.locks.acquire('key');
    await expect(app.locks.tryAcquire('key')).resolves.toBeNull();
    await lock.release();
    await expect(app.locks.tryAcquire('key')).resolves.not.toBeNull();
    expect(app.lines.lines).toHaveLength(1);
  });
});

describe('invalid options', () => {
  const NODES =
    "a Redis node or an array of Redis nodes, each a URL such as 'redis://localhost:6379' (redis://, rediss:// or " +
    "unix://), ioredis options, or a client; or one `postgres(...)`, `mysql(...)`, `etcd(...)` or `zookeeper(...)`; or 'memory' to lock " +
    'inside this process only';
  const cases: [unknown, string][] = [
    [
      {},
      `Expected \`nodes\` to be ${NODES}, got undefined; if the value comes from an environment variable, set the variable`,
    ],
    [{ nodes: [] }, `Expected \`nodes\` to be ${NODES}, got []`],
    [
      { nodes: Array.from({ length: 32 }, (_, index) => `redis://localhost:${7_000 + index}`) },
      'Expected the number of `nodes` to be at most 31; three or five are usual, got 32',
    ],
    [{ nodes: '' }, `Expected \`nodes\` to be ${NODES}, got ''`],
    [{ nodes: null }, `Expected \`nodes\` to be ${NODES}, got null`],
    [{ nodes: [7] }, `Expected \`nodes\` to be ${NODES}, got 7`],
    [
      { nodes: 'localhost:6379' },
      `Expected \`nodes\` to be ${NODES}, got a string without a scheme; begin with redis://`,
    ],
    [
      { nodes: 'db.example' },
      `Expected \`nodes\` to be ${NODES}, got a string without a scheme; begin with redis://`,
    ],
    [
      { nodes: 'postgres://me:secret@db/app?password=secret' },
      `Expected \`nodes\` to be ${NODES}, got a string that begins with 'postgres://'; use ` +
        '`postgres({ connectionString })` of nestjs-redlock/postgres',
    ],
    [
      { nodes: ['http://me:secret@a:2379', 'http://b:2379'] },
      `Expected \`nodes\` to be ${NODES}, got a string that begins with 'http://'; use \`etcd({ endpoints })\` of nestjs-redlock/etcd`,
    ],
    [
      { nodes: 'redis+sentinel://me:secret@a:26379,b:26379/name?sentinelPassword=secret' },
      `Expected \`nodes\` to be ${NODES}, got a string that begins with 'redis+sentinel://'; use ` +
        'an object of ioredis options, `{ name, sentinels }`',
    ],
    [
      { nodes: 'redis+cluster://a:6379' },
      `Expected \`nodes\` to be ${NODES}, got a string that begins with 'redis+cluster://'; use a \`Cluster\` client`,
    ],
    [
      { nodes: 'redis://a b' },
      `Expected \`nodes\` to be ${NODES}, got a string that begins with 'redis://', which contains a space or a line break`,
    ],
    [
      { nodes: ['memory', 'redis://localhost'] },
      "Expected `nodes` to be 'memory' alone, or Redis nodes alone (the two cannot vote together), got 'memory'",
    ],
    [
      { ...memory, keyPrefix: 'a{}' },
      'Expected `keyPrefix` to be a string without the empty hash tag "{}", got \'a{}\'',
    ],
    [
      { ...memory, keyPrefix: 1 },
      'Expected `keyPrefix` to be a string without the empty hash tag "{}", got 1',
    ],
    [
      { ...memory, nodeTimeout: 0 },
      'Expected `nodeTimeout` to be a whole number of milliseconds, at least 1, got 0',
    ],
    [
      { ...memory, restartGuard: 0 },
      'Expected `restartGuard` to be `false`, or a whole number of milliseconds, at least 1, got 0',
    ],
    [
      { ...memory, waitForQuorum: true },
      'Expected `waitForQuorum` to be a whole number of milliseconds, at least 1, got true',
    ],
    [
      { ...memory, restartGuard: true },
      'Expected `restartGuard` to be `false`, or a whole number of milliseconds, at least 1, got true',
    ],
    [{ ...memory, driftFactor: 1 }, 'Expected `driftFactor` to be a number from 0 to 0.5, got 1'],
    [{ ...memory, driftFactor: NaN }, 'Expected `driftFactor` to be a number from 0 to 0.5, got NaN'],
    [{ ...memory, owner: '' }, "Expected `owner` to be a string that is not empty, got ''"],
    [
      { ...memory, threadNodes: './lock-nodes.js' },
      "Expected `threadNodes` to be a `file:` URL such as `new URL('./lock-nodes.js', import.meta.url)`, or an absolute path " +
        "such as `join(__dirname, 'lock-nodes.js')`, got './lock-nodes.js'",
    ],
    [
      { ...memory, shutdownTimeout: -1 },
      'Expected `shutdownTimeout` to be a whole number of milliseconds, at least 0, got -1',
    ],
    [
      { ...memory, inTransaction: true },
      'Expected `inTransaction` to be a function that reports if a transaction is open, got true',
    ],
    [
      { ...memory, inTransaction: () => true, afterTransaction: [] },
      'Expected `afterTransaction` to be a function that takes a callback, got []',
    ],
    [
      { ...memory, afterTransaction: () => undefined },
      '`afterTransaction` is called only in an open transaction: also set `inTransaction`, which reports one',
    ],
    [
      { ...memory, inTransaction: () => true, defaults: { release: 'afterCommit' } },
      "`release: 'afterCommit'` needs `RedlockModule.forRoot({ inTransaction, afterTransaction })`, with which the database " +
        'library reports a transaction and its end. Give both; or leave out `release`, and put the lock around the ' +
        'transaction: `@WithLock` above `@Transactional`',
    ],
    [{ ...memory, defaults: 5 }, 'Expected `defaults` to be an object of options, got 5'],
    [
      { ...memory, defaults: { ttl: 1 } },
      'Expected `defaults.ttl` to be a whole number of milliseconds, at least 10, got 1',
    ],
    [
      { ...memory, defaults: { retry: { delay: 0 } } },
      'Expected `defaults.retry.delay` to be a whole number of milliseconds, at least 1, got 0',
    ],
    [
      { ...memory, defaults: { retry: { timeot: 1 } } },
      'Unknown option `timeot` in `defaults.retry`. Did you mean `timeout`?',
    ],
    [
      { ...memory, defaults: { retry: [] } },
      'Expected the options of `defaults.retry` to be an object, got []',
    ],
    [
      { ...memory, defaults: { timeout: 5_000 } },
      'Unknown option `timeout` in `defaults`. It belongs in `retry`: `retry: { timeout: ... }`',
    ],
    [
      { ...memory, defaults: { nodeTimeout: 50 } },
      'Unknown option `nodeTimeout` in `defaults`. It is an option of `RedlockModule.forRoot`',
    ],
    [
      { ...memory, defaults: { mode: 'shared' } },
      "Unknown option `mode` in `defaults`. The number of holders is an option of one lock, not of all locks of a module: `@WithLock(key, { mode: 'shared' })`, `acquire(key, { mode: 'shared' })`",
    ],
    [
      { ...memory, defaults: { permits: 5 } },
      'Unknown option `permits` in `defaults`. The number of holders is an option of one lock, not of all locks of a module: `@WithLock(key, { permits: 5 })`, `acquire(key, { permits: 5 })`',
    ],
    [
      { ...memory, permits: 5 },
      'Unknown option `permits` in `RedlockModule`. The number of holders is an option of one lock, not of all locks of a module: `@WithLock(key, { permits: 5 })`, `acquire(key, { permits: 5 })`',
    ],
    [
      { ...memory, defaults: { onBusy: 'skip' } },
      'Unknown option `onBusy` in `defaults`. The options are `ttl`, `retry`, `renew`, `maxBlocked`, `minHold`, `maxHold`, `reentrant`, `onLost`, `release`',
    ],
    [
      { ...memory, ttl: 5_000 },
      'Unknown option `ttl` in `RedlockModule`. Options for every lock belong in `defaults`: `defaults: { ttl: ... }`',
    ],
    [{ ...memory, prefix: 'x' }, 'Unknown option `prefix` in `RedlockModule`. Did you mean `keyPrefix`?'],
    [
      { ...memory, host: 'x' },
      'Unknown option `host` in `RedlockModule`. The options are `nodes`, `keyPrefix`, `nodeTimeout`, ' +
        '`driftFactor`, `restartGuard`, `waitForQuorum`, `owner`, `defaults`, `locks`, `strict`, `overrides`, `onEvent`, `inTransaction`, ' +
        '`afterTransaction`, `shutdownTimeout`, `threadNodes`, `name`, `isGlobal`',
    ],
  ];

  test.each(cases)('forRoot throws for the options %j', (options, message) => {
    expect(() => Reflect.apply(RedlockModule.forRoot, RedlockModule, [options])).toThrow(new Error(message));
  });

  test.each(cases)('start-up fails when a factory returns the options %j', async (options, message) => {
    const module = RedlockModule.forRootAsync({ useFactory: () => options as RedlockModuleOptions });
    await expect(start(module)).rejects.toThrow(new Error(message));
  });

  test('an undefined option counts as omitted', async () => {
    const of = (...names: string[]): object => Object.fromEntries(names.map((name) => [name, undefined]));
    const defaults = of('ttl', 'retry', 'renew', 'maxHold', 'onBusy', 'label', 'signal');
    const options = {
      ...of('keyPrefix', 'nodeTimeout', 'driftFactor', 'restartGuard', 'owner', 'onEvent', 'shutdownTimeout'),
      ...of('inTransaction', 'afterTransaction', 'ttl', 'onBusy', 'name', 'isGlobal'),
      ...memory,
      defaults,
    } as RedlockModuleOptions;
    const ways = [
      RedlockModule.forRoot(options),
      RedlockModule.forRootAsync({ useFactory: () => options }),
      RedlockModule.forRoot({ ...options, defaults: undefined } as object as RedlockModuleOptions),
    ];
    for (const module of ways) {
      const { locks } = await start({ imports: [module] });
      await expect(locks.withLock('key', () => 'ran')).resolves.toBe('ran');
    }
  });

  test.each([
    ['name', 'billing'],
    ['isGlobal', false],
  ])(
    'start-up refuses `%s` from a factory, with advice to set it beside the factory',
    async (option, value) => {
      const useFactory = (): RedlockModuleOptions => ({ ...memory, [option]: value });
      await expect(start(RedlockModule.forRootAsync({ useFactory }))).rejects.toThrow(
        new TypeError(
          `Unknown option \`${option}\` in \`RedlockModule\`. The module needs it before the factory runs. Give it beside the factory: ` +
            `\`forRootAsync({ ${option}: ..., useFactory })\``,
        ),
      );
    },
  );

  test.each<[object, string]>([
    [{ name: '' }, "Expected `name` to be a string that is not empty, got ''"],
    [{ isGlobal: 'yes' }, "Expected `isGlobal` to be `true` or `false`, got 'yes'"],
  ])('forRoot and forRootAsync throw for the options %j', (extras, message) => {
    const refused = new Error(message);
    expect(() => RedlockModule.forRoot({ ...memory, ...extras })).toThrow(refused);
    expect(() => RedlockModule.forRootAsync({ useFactory: () => memory, ...extras })).toThrow(refused);
  });

  test.each([[undefined], [null], [{}], [{ nodes: 'memory' }], [{ name: 'billing' }]])(
    'forRootAsync throws for %j, which has no `useFactory`, `useClass` or `useExisting`',
    (options) => {
      expect(() => Reflect.apply(RedlockModule.forRootAsync, RedlockModule, [options])).toThrow(
        new TypeError(
          '`RedlockModule.forRootAsync` needs one of `useFactory`, `useClass` and `useExisting`, such as ' +
            '`{ useFactory: () => ({ nodes }) }`; if the options are already known, use `forRoot`',
        ),
      );
    },
  );

  test('forRoot without options throws an error that contains an example', () => {
    expect(() => Reflect.apply(RedlockModule.forRoot, RedlockModule, [])).toThrow(
      /'redis:\/\/localhost:6379'/,
    );
  });
});

describe('a Redis that is down when the application starts', () => {
  test('an application that starts without Redis logs this, and refuses locks until Redis is up', async () => {
    const [one, two] = [await freePort(), await freePort()];
    const server = await startRedis();
    const { port } = server;
    await server.kill();
    const app = await start({
      imports: [
        RedlockModule.forRoot({ nodes: [one, two, port].map((each) => `redis://127.0.0.1:${each}`) }),
        RedlockModule.forRoot({ ...PATIENT, nodes: server.url, name: 'single' }),
      ],
      providers: [Service],
    });
    const warning = (each: number): unknown =>
      expect.stringMatching(
        new RegExp(`^Cannot reach Redis at 127.0.0.1:${each}: .*ECONNREFUSED.*background`),
      );
    expect(app.lines.of('warn').toSorted()).toEqual([one, two, port, port].toSorted().map(warning));
    expect(app.lines.of('error').toSorted()).toEqual([
      expect.stringMatching(/^0 of 1 Redis nodes are connected and 1 are needed/),
      expect.stringMatching(/^0 of 3 Redis nodes are connected and 2 are needed/),
    ]);

    const error = await app
      .get(Service)
      .keys()
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toMatch(
      /^Could not lock "key": 2 of 3 nodes must agree, and \d gave no vote.*ECONNREFUSED/,
    );

    const alone = app.get<LockService>(lockServiceToken('single') as symbol);
    for (const call of [alone.acquire('key', { retry: false }), alone.inspect('key')]) {
      const refusal = await call.catch((thrown: unknown) => thrown);
      expect(refusal).toMatchObject({ votes: [{ vote: 'error' }] });
      expect((refusal as Error).message).toMatch(
        /^Could not (lock|inspect) "key": the node gave no usable answer; \S+: not connected \(connect ECONNREFUSED/,
      );
    }

    await server.restart();
    const single = app.get<LockService>(lockServiceToken('single') as symbol);
    await until(() =>
      single.tryAcquire('key').then(
        (lock) => lock !== null,
        () => false,
      ),
    );
    await app.close();
    await server.stop();
  });

  test('locks are granted if two of three nodes are up and the third hangs at start-up', async () => {
    const nodes = await startRedisNodes(2);
    const silent = await startTcpProxy(redis);
    silent.blackHole();
    const app = await start(
      RedlockModule.forRoot({
        ...PATIENT,
        nodes: [...nodes.map(({ url }) => url), silent.url],
        restartGuard: false,
      }),
    );
    expect(app.lines.of('error')).toEqual([]);
    await expect(app.locks.tryAcquire('key')).resolves.not.toBeNull();
    await app.close();
    await silent.close();
    await Promise.all(nodes.map((node) => node.stop()));
  });
});

describe('connections', () => {
  test('app.close() closes the connections that the module opened', async () => {
    const app = await start(RedlockModule.forRoot({ ...PATIENT, nodes: redis.url }));
    await expect(connected(1)).resolves.toBeUndefined();
    await app.close();
    await expect(connected(0)).resolves.toBeUndefined();
  });

  test('app.close() does not close the connection of a client that the user passed', async () => {
    const client = new Redis(redis.url, { connectionName: 'users-own' });
    const app = await start(RedlockModule.forRoot({ ...PATIENT, nodes: [client] }));
    const lock = await app.locks.acquire('key', once);
    await expect(looker.get('lock:{key}')).resolves.toContain(lock.id);
    await expect(connected(0)).resolves.toBeUndefined();
    await app.close();
    await expect(countLocks(looker)).resolves.toBe(0);
    await expect(client.ping()).resolves.toBe('PONG');
    expect(client.listenerCount('ready')).toBe(0);
    expect(client.listenerCount('error')).toBe(0);
    client.disconnect();
  });

  test('app.close() resolves even if the node was never reachable', async () => {
    const app = await start(RedlockModule.forRoot({ nodes: `redis://127.0.0.1:${await freePort()}` }));
    await expect(app.close()).resolves.toBeUndefined();
  });
});

describe('a node that ioredis would read as localhost', () => {
  test.each<[object, RegExp]>([
    [{ url: 'redis://:secret@host' }, /got an object with `url`, which ioredis does not know; give the URL/],
    [new URL('redis://:secret@host'), /got a URL object; give its text, `url.href`$/],
    [{ uri: 'redis://:secret@host' }, /got an object with `uri`, which ioredis does not know; give the URL/],
    [{ hostname: 'secret' }, /got an object with `hostname`, which ioredis does not know; give `host`$/],
    [
      { socket: { host: 'secret' } },
      /got an object with `socket`, which ioredis does not know; give `host` and/,
    ],
    [
      { connection: { host: 'secret' } },
      /got an object with `connection`, .*; give the value of `connection` itself$/,
    ],
    [
      { connectionString: 'redis://:secret@host' },
      /`connectionString`, which ioredis does not know; give the URL/,
    ],
    [{}, /got an object without options, which names no server; give `host`, `path` or `sentinels`$/],
    [
      { password: 'secret', db: 1 },
      /got an object with `password`, `db`, which names no server; give `host`/,
    ],
    [{ host: undefined, password: 'secret' }, /got an object whose `host` is undefined; .*set the variable$/],
    [{ host: undefined, port: 6379 }, /got an object whose `host` is undefined; .*set the variable$/],
    [{ host: '', port: 6379 }, /got an object whose `host` is ''; .*set the variable$/],
    [{ path: undefined, password: 'secret' }, /got an object whose `path` is undefined; .*set the variable$/],
    [
      { sentinels: undefined, name: 'secret' },
      /got an object whose `sentinels` is undefined; .*set the variable$/,
    ],
    [{ sentinels: [], name: 'secret' }, /got an object whose `sentinels` is \[\]; .*set the variable$/],
    [Promise.resolve('redis://:secret@host'), /got a Promise; await it, or use `forRootAsync`$/],
    [['redis://:secret@host'], /got an array in the array$/],
    [
      { connect: () => undefined, evalSha: () => undefined },
      /got a client of another package or version; give a `Redis`/,
    ],
  ])('forRoot refuses the node %j, and the error does not contain the password', (node, message) => {
    const nodes = ['redis://localhost:6379', node] as unknown as string[];
    expect(() => RedlockModule.forRoot({ nodes })).toThrow(message);
    expect(() => RedlockModule.forRoot({ nodes })).not.toThrow('secret');
  });
});

describe('a node that ioredis would read as another node', () => {
  test.each([
    [
      'redis://host/locks',
      'which does not end in the number of a database, such as redis://localhost:6379/1',
    ],
    ['redis://host/1locks', 'which does not end in the number of a database'],
    ['redis://host/-1', 'which does not end in the number of a database'],
    ['redis://host/1/', 'which does not end in the number of a database'],
    ['redis://host?db=locks', 'which does not end in the number of a database'],
    ['/tmp/redis.sock?db=locks', 'which does not end in the number of a database'],
    [
      'redis://a,redis://b',
      'which has several hosts; give independent nodes as an array with a URL for each',
    ],
    ['redis://a:1,b:2', 'which has several hosts'],
    ['redis://:pw@a:1,redis://b:2', 'which has several hosts'],
    ['redis://', 'which has no host'],
    ['redis:///1', 'which has no host'],
    ['redis://:50%@host', 'which has a "%" that is not written as %25'],
  ])('forRoot refuses the URL %s, and the error does not contain the password', (url, why) => {
    const kind = url.startsWith('/') ? 'a string without a scheme' : "a string that begins with 'redis://'";
    for (const nodes of [url, ['redis://a', url]])
      expect(() => RedlockModule.forRoot({ nodes })).toThrow(`got ${kind}, ${why}`);
  });

  test.each([
    [{ db: NaN }, RangeError, 'Expected `nodes.db` to be the number of a database, such as 1, got NaN'],
    [{ db: -1 }, RangeError, 'Expected `nodes.db` to be the number of a database, such as 1, got -1'],
    [{ db: 1.5 }, RangeError, 'Expected `nodes.db` to be the number of a database, such as 1, got 1.5'],
    [{ db: 'locks' }, TypeError, 'Expected `nodes.db` to be the number of a database'],
    [{ port: NaN }, RangeError, 'Expected `nodes.port` to be a port, from 1 to 65535, got NaN'],
    [{ port: 'redis' }, TypeError, 'Expected `nodes.port` to be a port'],
    [{ port: 65_536 }, RangeError, 'Expected `nodes.port` to be a port'],
  ])(
    'forRoot refuses the node options %p, and the error does not contain the password',
    (options, kind, message) => {
      const refused = refusalOf({ host: 'host', password: 'secret', ...options } as never);
      expect(refused).toBeInstanceOf(kind);
      expect(refused?.message).toContain(message);
      expect(refused?.message).not.toContain('secret');
    },
  );

  test.each<[RedlockModuleOptions['nodes']]>([
    ['redis://host/0'],
    ['rediss://user:p%25@[::1]:6380/15'],
    ['redis://host?db=2&family=6'],
    ['/tmp/redis.sock?db=2'],
    ['unix:///tmp/redis.sock'],
    ['redis://:a,b@host'],
    [{ host: 'host', db: '1', port: '6380' } as never],
    [{ host: 'host', db: undefined, port: undefined } as never],
  ])('forRoot accepts %j, which ioredis reads correctly', (nodes) => {
    expect(refusalOf(nodes)).toBeUndefined();
  });

  function refusalOf(nodes: RedlockModuleOptions['nodes']): Error | undefined {
    try {
      RedlockModule.forRoot({ nodes });
      return undefined;
    } catch (error) {
      return error as Error;
    }
  }
});

describe('a password', () => {
  const SECRET = 'p4ss:w/w0rd@x';
  const ESCAPED = encodeURIComponent(SECRET);

  test.each([
    `rediss//:${SECRET}@host`,
    `redis://user:${SECRET}@host:port`,
    `user:${SECRET}@host`,
    `http://:${SECRET}@host`,
    `host=db password=${SECRET}`,
    `\nredis://:${SECRET}@host`,
    `redis://:p4ss\nw0rd@host`,
    `redis://redis://:${SECRET}@host`,
    // A parser takes the password up to the "/" or "?" for a port.
    'redis://user:12/p4ss@host',
    'redis://user:12?p4ss@host',
    'redis://user:12#p4ss@host',
    [`redis://:${SECRET}@host`] as unknown as string,
    { port: `redis://:${SECRET}@host` } as unknown as string,
    { password: SECRET, db: SECRET } as unknown as string,
  ])('the error about the invalid URL %s does not contain the password', (url) => {
    const nodes = typeof url === 'string' ? url : ['redis://a', url];
    const message = messageOf(() => RedlockModule.forRoot({ nodes }));
    expect(message).toMatch(/`nodes(\.\w+)?`/);
    for (const part of SECRET.split(/[:/@]/)) expect(message).not.toContain(part.length > 1 ? part : SECRET);
  });

  test('the error about a URL in place of the options does not contain the password', async () => {
    const url = `redis://:${SECRET}@host` as unknown as RedlockModuleOptions;
    for (const options of [
      url,
      [url],
      { defaults: url },
      { nodes: 'memory', defaults: [url] },
      { nodes: 'memory', onEvent: { url } },
    ])
      expect(messageOf(() => RedlockModule.forRoot(options as RedlockModuleOptions))).not.toContain('p4ss');
    const failure = await start(RedlockModule.forRootAsync({ useFactory: () => url })).catch(
      (error: unknown) => error,
    );
    expect(inspect(failure, { depth: 9 })).not.toContain('p4ss');
  });

  test('a password that the server refuses is in no log line and in no error', async () => {
    const server = await startRedis({ args: ['--requirepass', 'right'] });
    const app = await start(
      RedlockModule.forRoot({ nodes: `redis://:${ESCAPED}@${server.host}:${server.port}` }),
    );
    const error = await app.locks.acquire('key', once).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toMatch(/WRONGPASS|ready|not connected/);
    expect(app.lines.of('warn')[0]).toMatch(
      /^Cannot reach Redis at .*: WRONGPASS .*; check the user and the password in the URL\. Trying again/,
    );
    for (const text of [inspect(error, { depth: 9, showHidden: true }), inspect(app.lines.lines)]) {
      expect(text).not.toContain('p4ss');
    }
    await app.close();
    await server.stop();
  });

  test.each([
    ['wrong', ':no@', 'WRONGPASS'],
    ['missing', '', 'NOAUTH'],
  ])('a %s password makes a call reject with the reason and with advice', async (_, password, reason) => {
    const server = await startRedis({ args: ['--requirepass', 'right'] });
    const app = await start(
      RedlockModule.forRoot({ nodes: `redis://${password}${server.host}:${server.port}` }),
    );
    const error = await app.locks.acquire('key', once).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toMatch(
      new RegExp(`not connected \\(${reason} .*\\); check the user and the password in the URL`),
    );
    await app.close();
    await server.stop();
  });

  function messageOf(action: () => unknown): string {
    try {
      action();
    } catch (error) {
      return inspect(error, { depth: 9 });
    }
    throw new Error('nothing was thrown');
  }
});

test('LockInterceptor can be injected', async () => {
  const app = await start(RedlockModule.forRoot(memory));
  expect(app.get(LockInterceptor)).toBeInstanceOf(LockInterceptor);
});
