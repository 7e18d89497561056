import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, jest, test } from '@jest/globals';
import { assertBuilt } from '../consumers/packed-package.js';
import { runCommand } from '../consumers/run-command.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { otherRuntime, type OtherRuntime } from '../support/other-runtimes.js';
import { startRedis } from '../support/redis-server.js';

// On a busy machine the thread may not be connected within the 5 s that the start waits for it. A block then loses the lock.
jest.retryTimes(2);

/** Blocks the event loop for longer than the ttl. */
const PROGRAM = `
  import { createLocks } from 'nestjs-redlock/standalone';

  const defaults = { ttl: 6_000, renew: 'thread' };
  const locks = createLocks({ nodes: process.env.REDIS, restartGuard: false, defaults });
  const byThread = await locks.acquire('by-thread');
  const byItself = await locks.acquire('by-itself', { renew: true });
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 8_000);
  console.log(JSON.stringify({ byThread: byThread.isHeld(), byItself: byItself.isHeld() }));
  await byThread.extend(10_000);
  await byThread.release();
  await locks.close();
`;

test.each<[OtherRuntime, readonly string[]]>([
  ['Bun', []],
  ['Deno', ['run', '--allow-all']],
])(
  'a thread keeps a lock while the event loop is blocked on %s, if it can be downloaded',
  async (name, args) => {
    assertBuilt();
    const program = await otherRuntime(name);
    if (program === undefined) return;
    const redis = await startRedis();
    const cwd = await mkdtemp(join(tmpdir(), 'runtime-'));
    cleanUpAfterTests(() => rm(cwd, { recursive: true, force: true }));
    await mkdir(join(cwd, 'node_modules'));
    await Promise.all([
      writeFile(join(cwd, 'package.json'), '{}'),
      writeFile(join(cwd, 'main.mjs'), PROGRAM),
      symlink(resolve('.'), join(cwd, 'node_modules/nestjs-redlock')),
    ]);
    const options = { cwd, env: { REDIS: redis.url }, timeout: 90_000 };
    const shown: unknown = JSON.parse(await runCommand(program, [...args, 'main.mjs'], options));
    expect(shown).toEqual({ byThread: true, byItself: false });
  },
);
