import { beforeAll, expect, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { bundled } from '../support/bundle.js';
import { startRedis } from '../support/redis-server.js';

let file: string;

beforeAll(async () => {
  file = await bundled('test/fixtures/script.ts');
});

/** The most milliseconds that a script may take. The scripts hold locks for far longer. */
const PATIENCE_MS = 60_000;

async function run(...args: string[]): Promise<{ code: unknown; output: string }> {
  const child = spawn(process.execPath, [file, ...args], {
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: PATIENCE_MS,
  });
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'exit') as Promise<unknown[]>]);
  return { code, output };
}

// Node.js ends a process that has nothing left to do. The exit code is 13 if the main module still awaits a Promise.

test.each([
  ['waits for a lock that lapses', 'acquired'],
  ['waits for a lock that stays held', 'LOCK_HELD'],
  ['waits behind another call', 'LOCK_HELD'],
])(
  'when it %s, a process with nodes in memory stays alive until its call has settled',
  async (work, output) => {
    await expect(run(work)).resolves.toEqual({ code: 0, output });
  },
);

test.each([
  ['waits while its client is connecting again', 'LOCK_UNAVAILABLE'],
  ['waits while its client has given up', 'LOCK_UNAVAILABLE'],
  ['starts with a client that has given up', 'started'],
])(
  'when it %s, a process without a connection stays alive until its call has settled',
  async (work, output) => {
    const server = await startRedis();
    await expect(run(work, server.url, String(server.pid))).resolves.toEqual({ code: 0, output });
    await server.stop();
  },
);

test('renewals do not keep a process alive', async () => {
  await expect(run('holds locks, and ends')).resolves.toEqual({ code: 0, output: 'false false' });
});

test('a pending retry of a release does not keep a process alive', async () => {
  const server = await startRedis();
  const child = run('holds a lock whose client has given up, and ends', server.url, String(server.pid));
  await expect(child).resolves.toEqual({ code: 0, output: 'released' });
  await server.stop();
});
