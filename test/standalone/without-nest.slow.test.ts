import { spawnSync } from 'node:child_process';
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { assertBuilt, loadedBy } from '../consumers/packed-package.js';
import { runCommand } from '../consumers/run-command.js';
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

test('the main entry point names the package that is missing', async () => {
  const { stderr } = spawnSync('node', ['--input-type=module', '-e', "import 'nestjs-redlock'"], {
    cwd: folder,
  });
  expect(String(stderr)).toMatch(/Cannot find package '@nestjs\/|Cannot find package 'reflect-metadata'/);
});

test.each(['esm', 'cjs'])('the types need no package but that of the client (%s)', (format) => {
  expect(loadedBy(`dist/${format}/standalone.d.ts`).packages).toEqual(['ioredis']);
});
