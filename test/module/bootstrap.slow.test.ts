import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { Test } from '@nestjs/testing';
import type { Redis } from 'ioredis';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { LockService, RedlockModule } from '../../lib/index.js';
import { bundled } from '../support/bundle.js';
import { freePort } from '../support/free-port.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { PATIENT } from '../support/patience.js';
import { DURABLE, type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

let redis: RedisServer;
let looker: Redis;
beforeAll(async () => {
  redis = await startRedis(DURABLE);
  looker = redis.client();
});
afterAll(() => redis.stop());

/** Number of the library's connections on the server. */
async function connections(): Promise<number> {
  return String(await looker.client('LIST')).split('name=nestjs-redlock').length - 1;
}

describe('a failed start', () => {
  let file: string;
  beforeAll(async () => {
    file = await bundled('test/fixtures/failed-bootstrap.ts');
  });
  afterEach(() => until(async () => (await connections()) === 0));

  /** Resolves to the output of the process, when it has ended by itself. */
  async function said(fault: string, url: string): Promise<string> {
    const child = spawn(process.execPath, [file], {
      env: { ...process.env, NODE_OPTIONS: '', REDIS_URL: url, FAULT: fault },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    cleanUpAfterTests(async () => void child.kill('SIGKILL'));
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
    await once(child, 'close');
    return output;
  }

  test.each([
    ['a provider fails', 'the database is away'],
    ['onModuleInit fails', 'the database is away'],
    ['another RedlockModule is refused', 'it is the same server as'],
  ])('the process of a failed start ends by itself when %s', async (fault, message) => {
    await expect(said(fault, redis.url)).resolves.toContain(message);
  });

  test('the process of a failed start ends by itself when Redis is down', async () => {
    const url = `redis://127.0.0.1:${await freePort()}`;
    await expect(said('a provider fails', url)).resolves.toContain('the database is away');
  });

  test('a failed start leaves no connection to Redis open', async () => {
    const failing = { provide: 'database', useFactory: () => Promise.reject(new Error('away')) };
    const imports = [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url })];
    const compiling = Test.createTestingModule({ imports, providers: [failing] }).compile();
    await expect(compiling).rejects.toThrow('away');
    await until(async () => (await connections()) === 0);
  });
});

describe('an application that is not initialised', () => {
  test.each<[string, (locks: LockService) => Promise<unknown>, unknown]>([
    ['acquire', async (locks) => (await locks.acquire('key', { retry: false })).release(), undefined],
    ['inspect', (locks) => locks.inspect('key'), expect.objectContaining({ held: false })],
    ['list', async (locks) => collect(locks.list()), []],
    ['forceRelease', (locks) => locks.forceRelease('key'), false],
    ['checkNodes', (locks) => locks.checkNodes(), expect.objectContaining({ available: true })],
  ])(
    'an application that is not initialised connects to Redis at the first call of `%s`',
    async (_method, use, result) => {
      const imports = [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url })];
      const module = await Test.createTestingModule({ imports }).compile();
      await expect(connections()).resolves.toBe(0);
      const answer = await use(module.get(LockService));
      expect(answer).toEqual(result);
      // A connection that a busy machine has just replaced is listed for a moment.
      await until(async () => (await connections()) === 1);
      await module.close();
      await until(async () => (await connections()) === 0);
    },
  );
});

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}
