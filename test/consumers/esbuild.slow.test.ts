import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { expect, test } from '@jest/globals';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startRedis } from '../support/redis-server.js';
import { assertBuilt } from './packed-package.js';
import { runCommand } from './run-command.js';

const PROGRAM = `
import { createLocks } from 'nestjs-redlock/standalone';

const locks = createLocks({ nodes: process.env.REDIS_URL!, defaults: { ttl: 6_000, renew: 'thread' } });
let isHeld = false;
// On a busy machine the thread may need longer than a start waits for it; without a thread each lock is lost.
for (let tries = 0; tries < 5 && !isHeld; tries++) {
  const lock = await locks.acquire('bundled');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 8_000);
  isHeld = lock.isHeld();
  await lock.release().catch(() => undefined);
}
console.log(isHeld);
await locks.close();
`;

test('a thread keeps a lock while the event loop is blocked, in a bundle that the command of docs/blocked-event-loop.md makes', async () => {
  assertBuilt();
  const redis = await startRedis();
  const page = await readFile('docs/blocked-event-loop.md', 'utf8');
  const [command = ''] = /^esbuild (?:.*\\\n)*.*$/m.exec(page) ?? [];
  const cwd = await mkdtemp(join(tmpdir(), 'esbuild-'));
  cleanUpAfterTests(() => rm(cwd, { recursive: true, force: true }));
  await Promise.all(['src', 'node_modules'].map((name) => mkdir(join(cwd, name))));
  await Promise.all([
    writeFile(join(cwd, 'package.json'), '{"type":"module"}\n'),
    writeFile(join(cwd, 'src/main.ts'), PROGRAM),
    symlink(resolve('.'), join(cwd, 'node_modules/nestjs-redlock')),
  ]);
  const PATH = [resolve('node_modules/.bin'), process.env['PATH']].join(delimiter);
  await runCommand('sh', ['-c', command], { cwd, env: { PATH } });
  // The bundle must not find the files of the package.
  await rm(join(cwd, 'node_modules'), { recursive: true });
  const env = { REDIS_URL: redis.url };
  await expect(runCommand(process.execPath, ['dist/main.js'], { cwd, env })).resolves.toBe('true\n');
});
