import { spawnSync } from 'node:child_process';
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { assertBuilt, loadedBy } from '../consumers/packed-package.js';
import { runCommand } from '../consumers/run-command.js';
import { otherRuntime, type OtherRuntime } from '../support/other-runtimes.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';

const ROOT = resolve(import.meta.dirname, '../..');

const CALLS = `
  const { createLocks, LockHeldError } = STANDALONE;
  const locks = createLocks({ nodes: process.env.REDIS, restartGuard: false });
  const other = createLocks({ nodes: process.env.REDIS, restartGuard: false });
  const refused = await locks.withLock('script', () =>
    other.acquire('script', { retry: false }).catch((error) => error instanceof LockHeldError));
  const lock = await other.acquire('script');
  await Promise.all([locks.close(), other.close()]);
  console.log(JSON.stringify({ refused, aborted: lock.signal.aborted }));
`;

const TICKS = `
  const locks = STANDALONE.createLocks({ nodes: 'memory' });
  const cron = await locks.oncePerTick('job', '0 9 * * *', () => 'ran').catch((error) => error);
  const interval = await locks.oncePerTick('job', 60_000, () => 'ran');
  await locks.close();
  console.log(JSON.stringify({ cron: cron.message, cause: cron.cause.code, interval }));
`;

let folder: string;
let redis: RedisServer;

beforeAll(async () => {
  assertBuilt();
  [folder, redis] = await Promise.all([mkdtemp(join(tmpdir(), 'standalone-')), startRedis()]);
  const installed = join(folder, 'node_modules/nestjs-redlock');
  await writeFile(join(folder, 'package.json'), '{}');
  await cp(join(ROOT, 'dist/esm'), join(installed, 'dist/esm'), { recursive: true });
  await cp(join(ROOT, 'dist/cjs'), join(installed, 'dist/cjs'), { recursive: true });
  await cp(join(ROOT, 'package.json'), join(installed, 'package.json'));
  await symlink(join(ROOT, 'node_modules/ioredis'), join(folder, 'node_modules/ioredis'));
});

afterAll(async () => {
  await redis.stop();
  await rm(folder, { recursive: true, force: true });
});

test.each([
  ['esm.mjs', `import * as STANDALONE from 'nestjs-redlock/standalone';${CALLS}`],
  ['cjs.cjs', `const STANDALONE = require('nestjs-redlock/standalone');(async () => {${CALLS}})();`],
])(
  'a program locks where no package of Nest, RxJS or reflect-metadata is installed, and ends: %s',
  async (file, text) => {
    await writeFile(join(folder, file), text);
    const options = { cwd: folder, env: { REDIS: redis.url }, timeout: 30_000 };
    const { refused, aborted } = JSON.parse(await runCommand('node', [file], options)) as Record<
      string,
      unknown
    >;
    expect({ refused, aborted }).toEqual({ refused: true, aborted: true });
  },
);

/** Acquires, renews, waits, loses and releases. The ttl allows for a machine that stands still for some seconds. */
const LIFE_OF_A_LOCK = `
  import { Redis } from 'ioredis';
  import { createLocks, LockHeldError, LockLostError } from 'nestjs-redlock/standalone';

  const nodes = process.env.REDIS;
  const [ours, theirs] = [0, 1].map(() => createLocks({ nodes, restartGuard: false }));
  const looker = new Redis(nodes);
  const told = {};
  const lock = await ours.acquire('one', { ttl: 10_000 });
  told.refused = await theirs.acquire('one', { retry: false }).catch((error) => error instanceof LockHeldError);
  const waits = theirs.acquire('one', { retry: { timeout: 60_000, delay: 30_000 } });
  for (let least = Infinity; !told.renewed && lock.isHeld(); ) {
    const left = await looker.pttl('lock:{one}');
    told.renewed = left > least;
    least = Math.min(least, left);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await lock.release();
  const next = await waits;
  told.waited = next.fencingToken > lock.fencingToken;
  const lost = new Promise((resolve) => next.signal.addEventListener('abort', resolve));
  await looker.del('lock:{one}');
  await lost;
  told.lost = next.signal.reason instanceof LockLostError;
  await next.release();
  told.free = !(await ours.inspect('one')).held;
  looker.disconnect();
  await Promise.all([ours.close(), theirs.close()]);
  console.log(JSON.stringify(told));
`;

test.each<[OtherRuntime, readonly string[]]>([
  ['Bun', []],
  ['Deno', ['run', '--allow-all']],
])(
  'a program acquires, renews, waits for, loses and releases locks on %s, if it can be downloaded',
  async (name, args) => {
    const program = await otherRuntime(name);
    if (program === undefined) return;
    const file = `${name}.mjs`;
    await writeFile(join(folder, file), LIFE_OF_A_LOCK);
    const options = { cwd: folder, env: { REDIS: redis.url }, timeout: 90_000 };
    const told = JSON.parse(await runCommand(program, [...args, file], options)) as object;
    expect(told).toEqual({ refused: true, renewed: true, waited: true, lost: true, free: true });
  },
);

test.each([
  ['ticks.mjs', `import * as STANDALONE from 'nestjs-redlock/standalone';${TICKS}`],
  ['ticks.cjs', `const STANDALONE = require('nestjs-redlock/standalone');(async () => {${TICKS}})();`],
])(
  '`oncePerTick` names the package `cron` where it is missing; an interval needs none: %s',
  async (file, text) => {
    await writeFile(join(folder, file), text);
    const output = await runCommand('node', [file], { cwd: folder, env: {}, timeout: 30_000 });
    expect(JSON.parse(output)).toEqual({
      cron:
        '`oncePerTick` with a cron expression needs the package `cron`, which cannot be loaded. Install it ' +
        '(`npm install cron`), or give an interval in milliseconds, which needs no package',
      // The newer versions of Node load the ES module also with `require`.
      cause: expect.stringMatching(/^(ERR_)?MODULE_NOT_FOUND$/),
      interval: 'ran',
    });
  },
);

test('the main entry point names the package that is missing', async () => {
  const { stderr } = spawnSync('node', ['--input-type=module', '-e', "import 'nestjs-redlock'"], {
    cwd: folder,
  });
  expect(String(stderr)).toMatch(/Cannot find package '@nestjs\/|Cannot find package 'reflect-metadata'/);
});

test.each(['esm', 'cjs'])('the types need no package but that of the client (%s)', (format) => {
  expect(loadedBy(`dist/${format}/standalone.d.ts`).packages).toEqual(['ioredis']);
});
