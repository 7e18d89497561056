import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { Redis, type RedisOptions } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import {
  type LockHandle,
  LockService,
  LockUnavailableError,
  type RedlockModuleOptions,
} from '../../lib/index.js';
import { bundled } from '../support/bundle.js';
import { countLocks } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { certificateFiles, startTlsServer, type TlsServer } from '../support/tls-server.js';
import { until } from '../support/until.js';

const run = promisify(execFile);

let cert: string;
let key: string;
let certFile: string;
/** The server for mutual TLS requires a client certificate. */
let servers: Record<'open' | 'mutual', TlsServer>;
let app: INestApplication | undefined;

beforeAll(async () => {
  const files = await certificateFiles();
  ({ cert, key, certFile } = files);
  const [open, mutual] = await Promise.all([startTlsServer(files, 'no'), startTlsServer(files, 'yes')]);
  servers = { open, mutual };
});
afterEach(async () => {
  await app?.close();
  app = undefined;
});

async function lockOver(nodes: RedlockModuleOptions['nodes'], log = new LogLines()): Promise<LockHandle> {
  app = await startApp({}, { nodes }, { logger: log });
  // A single attempt gives up after a fifth of the ttl, and a busy machine never stalls for that long.
  return app.get(LockService).acquire('key', { retry: false, ttl: 60_000 });
}

const to = (server: 'open' | 'mutual', tls: RedisOptions['tls']): RedisOptions => ({
  host: '127.0.0.1',
  port: servers[server].port,
  tls,
});

test('a lock over TLS works with a server certificate of a private certificate authority', async () => {
  const lock = await lockOver(to('open', { ca: cert }));
  await expect(countLocks(servers.open.redis.client())).resolves.toBe(1);
  await lock.extend();
  await lock.release();
  await expect(countLocks(servers.open.redis.client())).resolves.toBe(0);
});

test('a release over TLS wakes a waiter by a message', async () => {
  const lock = await lockOver(to('mutual', { ca: cert, cert, key }));
  const looker = servers.mutual.redis.client();
  const next = app!.get(LockService).acquire('key', { retry: { timeout: 60_000, delay: 60_000 } });
  await until(async () => (await looker.zcard('lock:{key}:q')) === 1);
  // Messages use a connection of their own, which needs the certificates, too.
  await until(async () => (await looker.pubsub('CHANNELS', 'lock:wake:*')).length === 1);
  const start = performance.now();
  await lock.release();
  await (await next).release();
  // Polling would take one minute.
  expect(performance.now() - start).toBeLessThan(30_000);
});

test('a lock over TLS works with a client certificate', async () => {
  const lock = await lockOver(to('mutual', { ca: cert, cert, key }));
  await expect(countLocks(servers.mutual.redis.client())).resolves.toBe(1);
  await lock.release();
});

test.each([
  ['ioredis 5', (options: RedisOptions) => new Redis(options)],
  ['ioredis 6', (options: RedisOptions) => new Redis6(options as object) as unknown as Redis],
])('a lock over TLS works with a passed-in client of %s', async (_version, connect) => {
  const client = connect(to('mutual', { ca: cert, cert, key }));
  cleanUpAfterTests(async () => client.disconnect());
  const lock = await lockOver(client);
  expect(lock.isHeld()).toBe(true);
  await lock.release();
});

describe('a rediss:// URL', () => {
  test('a rediss:// URL works when Node trusts the certificate of the server', async () => {
    const file = await bundled('test/fixtures/lock-once.ts');
    const { stdout } = await run(process.execPath, [file], {
      env: {
        ...process.env,
        NODE_OPTIONS: '',
        NODE_EXTRA_CA_CERTS: certFile,
        REDIS_URL: `rediss://127.0.0.1:${servers.open.port}`,
      },
      timeout: 200_000,
    });
    expect(stdout).toBe('locked key');
  });

  test('a rediss:// URL fails when Node does not trust the certificate of the server, and the log and the error say why', async () => {
    const log = new LogLines();
    const refused = lockOver(`rediss://127.0.0.1:${servers.open.port}`, log);
    await expect(refused).rejects.toThrow(/not connected \(self-signed certificate\)/);
    await expect(refused).rejects.toBeInstanceOf(LockUnavailableError);
    expect(log.of('warn')).toEqual([expect.stringContaining('self-signed certificate')]);
  });
});

test('a server that requires client certificates grants no lock to a client without one', async () => {
  await expect(lockOver(to('mutual', { ca: cert }))).rejects.toBeInstanceOf(LockUnavailableError);
});
