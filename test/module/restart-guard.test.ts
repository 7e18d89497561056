import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Controller, type INestApplication, Injectable, type ModuleMetadata, Scope } from '@nestjs/common';
import { LockService, LockUnavailableError, RedlockModule, WithLock } from '../../lib/index.js';
import type { RedlockModuleOptions } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

let servers: RedisServer[];
let prefixes = 0;
let keyPrefix: string;
let app: INestApplication | undefined;
let lines: LogLines;

beforeAll(async () => {
  servers = await startRedisNodes(3);
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

beforeEach(() => {
  // A new key prefix makes the nodes new: a node counts as new until it has a marker key with that prefix.
  keyPrefix = `p${++prefixes}:`;
  lines = new LogLines();
});
afterEach(async () => {
  await app?.close();
  app = undefined;
});

/** Starts an application over three new nodes. */
async function start(
  options: Partial<RedlockModuleOptions> & { readonly name?: string } = {},
  metadata: ModuleMetadata = {},
): Promise<LockService> {
  const nodes = servers.map(({ url }) => url);
  const { imports = [], ...rest } = metadata;
  app = await startPlainApp(
    { imports: [RedlockModule.forRoot({ ...PATIENT, nodes, keyPrefix, ...options }), ...imports], ...rest },
    { logger: lines },
  );
  return app.get(LockService);
}

/** Resolves to the milliseconds until every node votes. */
async function guardOf(locks: LockService): Promise<number> {
  const { nodes } = await locks.checkNodes();
  return Math.max(...nodes.map(({ votesIn = 0 }) => votesIn));
}

/**
 * Resolves to the full duration of the guard: the time that is left, rounded up to ten seconds. The durations in the tests
 * are multiples of ten seconds, and a test takes less than ten seconds.
 */
async function wholeGuardOf(locks: LockService): Promise<number> {
  return Math.ceil((await guardOf(locks)) / 10_000) * 10_000;
}

@Injectable()
class Minute {
  @WithLock('minute', { ttl: 60_000 })
  async run(): Promise<void> {}

  @WithLock('short', { ttl: 500 })
  async other(): Promise<void> {}
}

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  @WithLock('request', { ttl: 60_000 })
  async run(): Promise<void> {}
}

@Injectable({ scope: Scope.TRANSIENT })
class Transient {
  @WithLock('transient', { ttl: 60_000 })
  async run(): Promise<void> {}
}

@Controller()
class Routes {
  @WithLock('route', { ttl: 60_000 })
  async run(): Promise<void> {}
}

@Injectable()
class Heir extends Minute {
  override async other(): Promise<void> {}
}

@Injectable()
class Elsewhere {
  @WithLock('elsewhere', { ttl: 60_000, instance: 'billing' })
  async run(): Promise<void> {}
}

@Injectable()
class WithoutTtl {
  @WithLock('default')
  async run(): Promise<void> {}
}

describe('the restart guard (S12)', () => {
  test.each<[string, ModuleMetadata]>([
    ['of a provider', { providers: [Minute] }],
    ['of a provider that is request-scoped', { providers: [PerRequest] }],
    ['of a provider that is transient', { providers: [Transient] }],
    ['of a controller', { controllers: [Routes] }],
    ['of a method that a class inherits', { providers: [Heir] }],
    [
      'of an object that a factory makes',
      { providers: [{ provide: 'made', useFactory: () => new Minute() }] },
    ],
    ['of an object under `useValue`', { providers: [{ provide: 'value', useValue: new Minute() }] }],
  ])('the restart guard covers the ttl %s as soon as the application starts', async (_where, metadata) => {
    await expect(wholeGuardOf(await start({}, metadata))).resolves.toBe(60_000);
  });

  test('the restart guard covers the ttl of the defaults', async () => {
    await expect(wholeGuardOf(await start({ defaults: { ttl: 40_000 } }))).resolves.toBe(40_000);
  });

  test('the restart guard does not cover the ttl of a method that uses another module instance', async () => {
    const imports = [RedlockModule.forRoot({ name: 'billing', nodes: 'memory' })];
    await expect(wholeGuardOf(await start({}, { imports, providers: [Elsewhere] }))).resolves.toBe(10_000);
  });

  test('a method without a ttl does not change the restart guard', async () => {
    await expect(wholeGuardOf(await start({}, { providers: [WithoutTtl] }))).resolves.toBe(10_000);
    await app!.close();
    const providers = [WithoutTtl, Minute];
    await expect(wholeGuardOf(await start({}, { providers }))).resolves.toBe(60_000);
  });

  test('the restart guard does not grow at the first call of the method with the longest ttl', async () => {
    const locks = await start({ defaults: { retry: false } }, { providers: [Minute] });
    const before = await guardOf(locks);
    await expect(app!.get(Minute).run()).rejects.toBeInstanceOf(LockUnavailableError);
    await expect(guardOf(locks)).resolves.toBeLessThanOrEqual(before);
  });
});

test('start-up refuses a decorator with a ttl that is longer than the configured `restartGuard`', async () => {
  await expect(start({ restartGuard: 30_000 }, { providers: [Minute] })).rejects.toThrow(
    new RangeError(
      '@WithLock of Minute.run: Expected `ttl` to be at most the `restartGuard` of 30000 ms ' +
        '(set `restartGuard` to the largest ttl of all processes), got 60000',
    ),
  );
});

describe('the guard of new nodes', () => {
  /** The restart guard, in milliseconds. */
  const GUARD = 3_000;
  const short = { restartGuard: GUARD, defaults: { ttl: GUARD, retry: false } } as const;

  test('new nodes refuse locks during the restart guard, and the error names `restartGuard` and `waitForQuorum`', async () => {
    const locks = await start({ restartGuard: 60_000, defaults: { ttl: 60_000, retry: false } });
    const error = await locks.acquire('k').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toMatch(
      /votes again in \d+ ms \(restartGuard\)\. Set `waitForQuorum` to make the start of the application wait until a quorum votes\.$/,
    );
  });

  test('new nodes grant locks after start-up has waited for their votes (`waitForQuorum`)', async () => {
    const begun = performance.now();
    const locks = await start({ ...short, waitForQuorum: 60_000 });
    expect(performance.now() - begun).toBeGreaterThan(GUARD - 1_000);
    expect(lines.of('log')).toContain(
      'Waiting until 2 of 3 Redis nodes vote, for 60000 ms at most (waitForQuorum)',
    );
    // On a busy machine a node may miss its time limit. One of the three nodes may also vote later than the others.
    await until(async () => {
      const error = await locks.withLock('k', () => undefined).catch((thrown: unknown) => thrown);
      const votes = error instanceof LockUnavailableError ? error.votes : [];
      expect(votes.filter((vote) => vote.error?.message.includes('restartGuard')).length).toBeLessThan(2);
      return error === undefined;
    });
  });

  test('start-up waits for the votes of new nodes no longer than `waitForQuorum`', async () => {
    const begun = performance.now();
    await start({ restartGuard: 60_000, waitForQuorum: 500 });
    expect(performance.now() - begun).toBeLessThan(30_000);
    expect(lines.of('error')).toEqual([
      expect.stringMatching(
        /^After 500 ms \(waitForQuorum\), 0 of 3 Redis nodes vote and 2 are needed: nothing can be locked until more of them vote; .*votes again in \d+ ms/,
      ),
    ]);
  });
});
