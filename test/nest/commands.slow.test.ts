import { beforeAll, expect, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Redis } from 'ioredis';
import { bundled } from '../support/bundle.js';
import { countLocks, nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';

let file: string;
let server: RedisServer;
let looker: Redis;

beforeAll(async () => {
  [file, server] = await Promise.all([bundled('test/fixtures/command-app.ts'), startRedis()]);
  looker = server.client();
});

async function run(...args: string[]): Promise<{ code: unknown; output: string; errors: string }> {
  const child = spawn(process.execPath, [file, ...args], {
    env: { ...process.env, NODE_OPTIONS: '', NO_COLOR: '1', REDIS_URL: server.url },
    stdio: ['ignore', 'pipe', 'pipe'],
    // A socket or a timer of the library would keep the process alive until this limit.
    timeout: 200_000,
  });
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit') as Promise<unknown[]>,
  ]);
  return { code, output, errors };
}

test('a command of nest-commander runs under its lock, releases the lock, and lets the process end', async () => {
  await expect(run('report', 'daily', '--copies', '3')).resolves.toEqual({
    code: 0,
    output: '3 copies under report:daily\n',
    errors: '',
  });
  await expect(countLocks(looker)).resolves.toBe(0);
});

test('a command whose lock is held does not run', async () => {
  const nodes = nodesTo([server.url]);
  await Promise.all(nodes.map((node) => node.connect()));
  const redlock = redlockOver(nodes, { owner: 'another one' });
  const lock = await redlock.acquire(['report:daily'], {
    ttl: 60_000,
    retry: NO_RETRY,
    renew: false,
    signals: [],
  });
  await expect(run('report', 'daily', '--copies', '3')).resolves.toEqual({
    code: 1,
    output: '',
    errors: expect.stringContaining('"report:daily" is held by another one'),
  });
  await lock.release();
  await redlock.close();
});
