import { AsyncResource } from 'node:async_hooks';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type INestApplication, Injectable, Module } from '@nestjs/common';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { Cluster, type RedisOptions } from 'ioredis';
import { execFileSync } from 'node:child_process';
import type { IncomingMessage } from 'node:http';
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  defineLocks,
  InjectLockService,
  type LockHandle,
  LockHeldError,
  LockLostError,
  type LockOptions,
  LockService,
  LockUnavailableError,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../lib/index.js';
import { RedlockBoardModule } from '../lib/board/index.js';
import { etcd } from '../lib/etcd/index.js';
import { createLocks } from '../lib/standalone/index.js';
import { whyNotLoopback } from '../lib/board/live/own-page.js';
import { type Certificate, selfSigned } from './support/certificate.js';
import { freePort } from './support/free-port.js';
import { cleanUpAfterTests } from './support/leftovers.js';
import { LogLines } from './support/log-lines.js';
import { startApp } from './support/nest-app.js';
import { PATIENT } from './support/patience.js';
import { beginSlotMove, startMasters } from './support/redis-cluster.js';
import { redisVersion, type RedisServer, startRedis } from './support/redis-server.js';
import { startTcpProxy } from './support/tcp-proxy.js';
import { certificateFiles, startTlsServer } from './support/tls-server.js';
import { until } from './support/until.js';
import { BlockedHolder, holderProgram } from './thread/blocked-holder.js';

// These tests provoke each message in the tables of docs/errors.md. Messages of servers come from real servers.

const page = readFileSync(join(import.meta.dirname, '../docs/errors.md'), 'utf8');

/** Returns the messages in the first column of the table of a section. */
function messagesIn(section: string): string[] {
  const [, text = ''] = page.split(`\n## ${section}\n`);
  const [table = ''] = text.split('\n## ');
  const cells = [...table.matchAll(/^\| (`.*?`) +\| /gm)].map(([, cell = '']) => cell);
  return cells.flatMap((cell) =>
    [...cell.matchAll(/(`+) ?(.+?) ?\1(?!`)/g)].map(([, , message = '']) => message),
  );
}

/** Makes a pattern of a message of the page, in which `...` stands for any text. */
function pattern(message: string): RegExp {
  const parts = message.split(/ ?\.\.\. ?/).map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(parts.join('.*'), 's');
}

/** Tests that each message of a section can be provoked. `ways` must have exactly one entry for each message. */
function provoke(section: string, ways: Readonly<Record<string, () => Promise<string>>>): void {
  const messages = messagesIn(section).filter((message) => !OF_OTHER_SERVERS.includes(message));

  test(`the tests provoke every message in the section "${section}" of docs/errors.md`, () => {
    expect(Object.keys(ways).toSorted()).toEqual(messages.toSorted());
  });

  test.each(messages)('the message "%s" can be provoked', async (message) => {
    const way = ways[message] ?? (() => Promise.resolve('nobody knows how'));
    await expect(way()).resolves.toMatch(pattern(message));
  });
}

/**
 * Answers of Redis to a user without the right to a command inside a script. Versions up to 7.0 give the first answer,
 * later versions the second.
 */
const DENIED_INSIDE = [
  "ERR The user executing the script can't run this command ...",
  'ERR ACL failure in script: ...',
] as const;
const deniedInside = DENIED_INSIDE[redisVersion() < 7.2 ? 0 : 1];
const OF_OTHER_SERVERS: readonly string[] = DENIED_INSIDE.filter((message) => message !== deniedInside);

const once = { retry: false } as const;
const SECRET = 'secret';
/** A URL without a server. Neither tests nor other programs listen on this low port. */
const NO_SERVER = 'redis://127.0.0.1:1';

let app: INestApplication | undefined;
let server: RedisServer | undefined;
afterEach(async () => {
  await app?.close();
  await server?.stop();
  app = server = undefined;
});

/** Starts an application with these nodes; returns its locks. */
async function locksOn(
  nodes: RedlockModuleOptions['nodes'],
  options: Partial<RedlockModuleOptions> = {},
): Promise<LockService> {
  app = await startApp({}, { nodes, ...options }, { logger: new LogLines() });
  return app.get(LockService);
}

/** Starts a server, and returns locks on it. */
async function locksOnServer(...args: string[]): Promise<{ locks: LockService; redis: RedisServer }> {
  const redis = (server = await startRedis({ args }));
  const locks = await locksOn(redis.url);
  // From here on the application is connected, and the server has the scripts.
  await (await locks.acquire('first', once)).release();
  return { locks, redis };
}

/** Asks for a lock; returns the message of the {@link LockUnavailableError}, or an empty text without one. */
async function whyUnavailable(
  locks: LockService,
  options: LockOptions = {},
  keys: string | readonly string[] = 'key',
): Promise<string> {
  const outcome = await locks.acquire(keys, { ...once, ...options }).catch((error: unknown) => error);
  return outcome instanceof LockUnavailableError ? outcome.message : '';
}

/** Repeats {@link whyUnavailable} until the message matches `wanted`; returns the message. */
async function whyUnavailableUntil(locks: LockService, wanted: RegExp): Promise<string> {
  let why = '';
  await until(async () => wanted.test((why = await whyUnavailable(locks))));
  return why;
}

/** Returns the error of a user with these rights. */
async function whyUnavailableWith(...rights: string[]): Promise<string> {
  const redis = (server = await startRedis());
  await redis.client().call('ACL', 'SETUSER', 'locks', 'on', `>${SECRET}`, ...rights);
  return whyUnavailable(await locksOn(`redis://locks:${SECRET}@${redis.host}:${redis.port}`));
}

/** Returns locks on a server with a password. `credentials` is the part of the URL before the host. */
async function locksWithPassword(credentials: string): Promise<LockService> {
  server = await startRedis({ args: ['--requirepass', SECRET] });
  return locksOn(`redis://${credentials}${server.host}:${server.port}`);
}

/** Returns the error of a client that does not know the certificate of its server. */
async function whyUnavailableOverTls(certificate: Certificate): Promise<string> {
  const { redis, port } = await startTlsServer(await certificateFiles(certificate), 'no');
  server = redis;
  return whyUnavailable(await locksOn(`rediss://127.0.0.1:${port}`));
}

const readTls = (name: string): string => readFileSync(join(import.meta.dirname, 'cli/tls', name), 'utf8');

describe('docs/errors.md quotes each LOCK_UNAVAILABLE message', () => {
  provoke('LOCK_UNAVAILABLE', {
    'not connected (connect ECONNREFUSED ...)': async () => whyUnavailable(await locksOn(NO_SERVER)),
    'not connected (self-signed certificate)': () => whyUnavailableOverTls(selfSigned()),
    'not connected (unable to verify ...)': () =>
      whyUnavailableOverTls({ cert: readTls('redis.crt'), key: readTls('redis.key') }),
    'not connected (WRONGPASS ...)': async () => whyUnavailable(await locksWithPassword(':wrong@')),
    'not connected (NOAUTH ...)': async () => whyUnavailable(await locksWithPassword('')),
    'NOPERM ...': () => whyUnavailableWith('~lock:*', '+@all', '-evalsha'),
    [deniedInside]: () => whyUnavailableWith('~lock:*', '+@all', '-set'),
    'no answer within ... ms': async () => {
      const { locks, redis } = await locksOnServer();
      redis.pause();
      return whyUnavailable(locks, { ttl: 1_000 });
    },
    'got the request ... ms too late, and did nothing': async () => {
      server = await startRedis();
      const client = server.client();
      const locks = await locksOn(client);
      await (await locks.acquire('first', once)).release();
      for (;;) {
        const written = client.stream.bytesWritten;
        server.pause();
        // The server has a fifth of the ttl to answer.
        const asked = performance.now();
        const why = whyUnavailable(locks, { ttl: 5_000 });
        const isOver = (): boolean => performance.now() - asked > 900;
        await until(() => isOver() || client.stream.bytesWritten > written);
        // On a machine that stalls, the attempt ends before the process is blocked. Then the step begins again.
        const isLate = isOver();
        // This process is blocked past that time limit, and until the server has answered. If it ran, it would give up at
        // the limit, and would not read the late answer.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_500);
        server.resume();
        // The server answers in order: the answer to this PING shows that it has processed the earlier command.
        const ping = `require('node:net').connect(${server.port}).on('data', () => process.exit()).write('PING\\r\\n')`;
        execFileSync(process.execPath, ['-e', ping]);
        const text = await why;
        if (!isLate) return text;
      }
    },
    'has not answered for a while ...': async () => {
      const { locks, redis } = await locksOnServer();
      redis.pause();
      return whyUnavailableUntil(locks, /for a while/);
    },
    'the connection was lost before the answer came': async () => {
      server = await startRedis();
      const proxy = await startTcpProxy(server);
      const locks = await locksOn(proxy.url);
      for (;;) {
        // The connection has just been used, so that the library repeats nothing when the connection is lost. On a machine
        // that stalls for a second, it was idle, and the step begins again.
        await (await locks.acquire('first')).release();
        const used = performance.now();
        proxy.forgetConnections();
        const why = await whyUnavailable(locks);
        if (why !== '' || performance.now() - used < 1_000) return why;
        await locks.forceRelease('key');
      }
    },
    'started or lost its data a short while ago ... votes again in ... ms': async () => {
      server = await startRedis();
      return whyUnavailable(await locksOn(server.url, { restartGuard: 60_000 }));
    },
    'cannot be used for locks: ...': async () => {
      // The server starts after the application, because an application does not start on a replica.
      const port = await freePort();
      const locks = await locksOn(`redis://127.0.0.1:${port}`);
      server = await startRedis({ port, args: ['--replicaof', '127.0.0.1', '1'] });
      return whyUnavailableUntil(locks, /a replica/);
    },
    'OOM ...': async () => {
      const { locks, redis } = await locksOnServer();
      await redis.client().config('SET', 'maxmemory', '1');
      return whyUnavailable(locks);
    },
    'MISCONF ...': async () => {
      const { locks, redis } = await locksOnServer('--save', '3600 1');
      await rm(redis.workingDirectory, { recursive: true });
      const admin = redis.client();
      await admin.bgsave();
      await until(async () => (await admin.info('persistence')).includes('rdb_last_bgsave_status:err'));
      return whyUnavailable(locks);
    },
    'NOREPLICAS ...': async () => {
      const { locks, redis } = await locksOnServer();
      await redis.client().config('SET', 'min-replicas-to-write', '1');
      return whyUnavailable(locks);
    },
    'READONLY ...': async () => {
      const { locks, redis } = await locksOnServer();
      await redis.client().replicaof('127.0.0.1', 1);
      return whyUnavailable(locks);
    },
    'TRYAGAIN ...': async () => {
      const [from, to] = (await startMasters([], [])) as [RedisServer, RedisServer];
      server = from;
      const cluster = new Cluster([from]);
      cluster.on('error', () => undefined);
      cleanUpAfterTests(async () => cluster.disconnect());
      const locks = await locksOn(cluster);
      // All keys with this hash tag are in slot 2150, which the first server has.
      await beginSlotMove(from, to, 'lock:{{c}:1}');
      return whyUnavailable(locks, {}, ['{c}:1', '{c}:2']);
    },
    'LOADING ...': async () => {
      const { locks, redis } = await locksOnServer('--enable-debug-command', 'yes', '--rdbcompression', 'no');
      const admin = redis.client();
      await admin.eval("for i = 1, 100 do redis.call('SET', 'k' .. i, string.rep('v', 2048)) end", 0);
      // The server takes a tenth of a second to load each key, and answers between two keys.
      await admin.config('SET', 'key-load-delay', '100000', 'loading-process-events-interval-bytes', '1024');
      admin.call('DEBUG', 'RELOAD').catch(() => undefined);
      return whyUnavailableUntil(locks, /LOADING/);
    },
    'BUSY ...': async () => {
      const { locks, redis } = await locksOnServer('--lua-time-limit', '10');
      const admin = redis.client();
      redis
        .client()
        .eval('while true do end', 0)
        .catch(() => undefined);
      await until(async () =>
        admin.ping().then(
          () => false,
          (error: Error) => error.message.startsWith('BUSY'),
        ),
      );
      const why = await whyUnavailable(locks);
      await admin.script('KILL');
      return why;
    },
    'WRONGTYPE ...': async () => {
      const { locks, redis } = await locksOnServer();
      await redis.client().lpush('lock:{key}', 'something else');
      return whyUnavailable(locks);
    },
    'the key has a value that is not a lock of this package': async () => {
      const { locks, redis } = await locksOnServer();
      await redis.client().set('lock:{key}', 'something else');
      return whyUnavailable(locks);
    },
    'fencing token out of range ...': async () => {
      const { locks, redis } = await locksOnServer();
      const lock = await locks.acquire('key', once);
      await lock.release();
      // Simulates a token from a time when the clock of the server was centuries ahead.
      await redis.client().setrange('lock:{key}', 2, String(Number.MAX_SAFE_INTEGER));
      return whyUnavailable(locks);
    },
    'the application is shutting down': async () => {
      const { locks } = await locksOnServer();
      await app?.close();
      return whyUnavailable(locks);
    },
  });
});

/** Returns the message of the error of this class; throws any other outcome. */
async function messageOf(Kind: new (...args: never[]) => Error, failing: Promise<unknown>): Promise<string> {
  const error = await failing.then(
    (value) => new Error(`it succeeded with ${String(value)}`),
    (thrown: unknown) => thrown,
  );
  if (error instanceof Kind) return error.message;
  throw error;
}

/**
 * Runs a task until its lock is lost. `running` resolves when the task begins, and `ended` resolves to the message of
 * its {@link LockLostError}.
 */
function untilLost(locks: LockService): { readonly running: Promise<void>; readonly ended: Promise<string> } {
  let begun = (): void => undefined;
  const running = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const task = ({ signal }: { signal: AbortSignal }): Promise<unknown> => {
    begun();
    return new Promise((resolve) => {
      signal.addEventListener('abort', resolve);
    });
  };
  return { running, ended: messageOf(LockLostError, locks.withLock('key', task)) };
}

@Injectable()
class Beats {
  @Interval(60_000)
  @WithLock('beat', { oncePerTick: true, onBusy: 'throw' })
  async beat(): Promise<void> {}
}

/** Makes a call while a writer waits for readers; returns the message of its refusal. */
async function behindWriter(
  locks: LockService,
  call: () => Promise<unknown>,
  write: () => Promise<unknown> = () => locks.acquire('key').catch(() => undefined),
): Promise<string> {
  void write();
  await until(async () => (await server!.client().exists('lock:{key}:w')) === 1);
  return messageOf(LockHeldError, call());
}

describe('docs/errors.md quotes each LOCK_HELD message', () => {
  provoke('LOCK_HELD', {
    'is held by ... (for ... ms more unless renewed)': async () => {
      const { locks } = await locksOnServer();
      await locks.acquire('key');
      return messageOf(LockHeldError, locks.acquire('key', once));
    },
    'is reserved for ... who came earlier and waits in the queue': async () => {
      const { locks } = await locksOnServer();
      await locks.acquire('key', { mode: 'shared' });
      return behindWriter(locks, () => locks.acquire('key', { ...once, mode: 'shared' }));
    },
    'That waiter cannot get the lock before': async () => {
      const { locks } = await locksOnServer();
      // The call of a writer inside `withLock` of a reader would be refused at once, so the writer asks from outside.
      const outside = AsyncResource.bind(() => locks.acquire('key').catch(() => undefined));
      return locks.withLock('key', { mode: 'shared' }, () =>
        behindWriter(locks, () => locks.acquire('key', { ...once, mode: 'shared' }), outside),
      );
    },
    'the calling code already holds that lock': async () => {
      const { locks } = await locksOnServer();
      return messageOf(
        LockHeldError,
        locks.withLock('key', () => locks.acquire('key', once)),
      );
    },
    'The two kinds of lock cannot join': async () => {
      const locks = (await startApp({})).get(LockService);
      return messageOf(
        LockHeldError,
        locks.withLock('key', { permits: 2 }, () => locks.acquire('key', { ...once, reentrant: true })),
      );
    },
    'which excludes': async () => {
      const locks = (await startApp({})).get(LockService);
      await locks.acquire('key', { permits: 2 });
      return messageOf(LockHeldError, locks.acquire('key', once));
    },
    'without an expiry': async () => {
      const { locks, redis } = await locksOnServer();
      await locks.acquire('key');
      await redis.client().persist('lock:{key}');
      return messageOf(LockHeldError, locks.acquire('key', once));
    },
    'has already run': async () => {
      server = await startRedis();
      app = await startApp({ providers: [Beats] }, { nodes: server.url, defaults: once });
      const beats = app.get(Beats);
      await beats.beat();
      return messageOf(LockHeldError, beats.beat());
    },
  });
});

describe('docs/errors.md quotes each LOCK_LOST message', () => {
  /** Acquires a lock, makes the holder lose it, and returns the message of the loss. */
  async function loss(
    options: LockOptions,
    lose: (redis: RedisServer) => unknown = () => undefined,
  ): Promise<string> {
    const { locks, redis } = await locksOnServer();
    // The server has a fifth of the ttl to answer, so a busy machine may need several attempts for a short ttl.
    const lock = await locks.acquire('key', { ...options, retry: { timeout: 60_000 } });
    await lose(redis);
    await until(() => lock.signal.aborted);
    return messageOf(LockLostError, Promise.reject(lock.signal.reason as Error));
  }

  const joining = { reentrant: true, ...once } as const;

  /** Joins the lock with a nested call, which ends when the lock is lost; returns the message of its error. */
  function beside(locks: LockService, { signal }: LockHandle): Promise<string> {
    const ended = new Promise((resolve) => {
      signal.addEventListener('abort', resolve);
    });
    return messageOf(
      LockLostError,
      locks.withLock('key', joining, () => ended),
    );
  }

  provoke('LOCK_LOST', {
    'its validity ran out before a quorum renewed it': () => loss({ ttl: 300 }, (redis) => redis.pause()),
    'the event loop was blocked for longer than its maxBlocked of ... ms': async () => {
      server = await startRedis();
      // The ttl leaves seconds for the renewals before the block.
      const options = { ttl: 4_000, renew: 'thread', maxBlocked: 1_000 } as const;
      const program = await holderProgram();
      const holder = await BlockedHolder.start({ program, urls: [server.url], key: 'key', options });
      const { error = '' } = await holder.ask('block 6500');
      await holder.kill();
      return error;
    },
    'its maxHold of ... ms had passed': async () => {
      // A server may answer the renewal before the end too late, and then the message names the validity.
      const { signal } = await (await locksOn('memory')).acquire('key', { ttl: 300, maxHold: 100 });
      await until(() => signal.aborted);
      return messageOf(LockLostError, Promise.reject(signal.reason as Error));
    },
    'fewer than a quorum of nodes still store it': () =>
      loss({ ttl: 6_000 }, (redis) => redis.client().flushall()),
    'the outer call released it while a nested call still used it': async () => {
      const { locks } = await locksOnServer();
      return locks.withLock('key', async (lock) => {
        const nested = beside(locks, lock);
        await lock.release();
        return nested;
      });
    },
    'a nested call could acquire its keys': async () => {
      const { locks, redis } = await locksOnServer();
      return locks.withLock('key', { onLost: 'ignore' }, async (lock) => {
        const sibling = beside(locks, lock);
        await redis.client().del('lock:{key}');
        const nested = messageOf(LockLostError, locks.acquire('key', joining));
        await sibling;
        return nested;
      });
    },
    'it was released by force': () => loss({}, () => app?.get(LockService).forceRelease('key')),
    'the application shut down before the transaction around its method had ended': async () => {
      const hooks = { inTransaction: () => true, afterTransaction: () => undefined };
      const locks = await locksOn('memory', { shutdownTimeout: 10, ...hooks });
      const lock = await locks.withLock('key', { release: 'afterCommit' }, (held) => held);
      await app?.close();
      return messageOf(LockLostError, lock.extend());
    },
    'the code under it closed the application': async () => {
      const locks = await locksOn('memory');
      return messageOf(
        LockLostError,
        locks.withLock('key', () => app?.close()),
      );
    },
    'the application shut down while it was held': () => loss({}, () => app?.close()),
    'the application shut down before its method had ended': async () => {
      server = await startRedis();
      const locks = await locksOn(server.url, { shutdownTimeout: 10 });
      const { running, ended } = untilLost(locks);
      await running;
      await app?.close();
      return ended;
    },
  });
});

/** Returns the message of the error that the action throws at once. */
function thrownBy(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('nothing was thrown');
}

const memory = { nodes: 'memory' } as const;
const declared = defineLocks({ report: { key: 'report' }, invoice: { key: 'invoice', instance: 'billing' } });

describe('docs/errors.md quotes each message about invalid options', () => {
  provoke('Options that do not fit', {
    'no `permits`, got ..., because the lock is declared without `permits`': async () =>
      thrownBy(() =>
        RedlockModule.forRoot({ ...memory, locks: declared, overrides: { report: { permits: 2 } } }),
      ),
    'is declared for the module ..., but the call went to': async () =>
      messageOf(TypeError, (await locksOn('memory')).acquire(declared.invoice)),
    'Expected `ttl` to be a multiple of ... ms, at least ...': async () => {
      const locks = await locksOn(etcd({ endpoints: 'http://127.0.0.1:1' }));
      return messageOf(RangeError, locks.acquire('key', { ttl: 2_500 }));
    },
    'Expected `key` to be a key without a missing value': async () =>
      thrownBy(() => defineLocks({ report: { key: 'report:undefined' } })),
    'Expected `key` to be at most 2000 bytes long in UTF-8': async () => {
      const locks = await locksOn('memory');
      return messageOf(RangeError, locks.acquire('x'.repeat(2_001)));
    },
    '... cannot store a lock of ...': async () => {
      const locks = await locksOn(etcd({ endpoints: 'http://127.0.0.1:1' }));
      return messageOf(RangeError, locks.acquire('a\0b'));
    },
    'Expected `ttl` to be at most the `restartGuard` of ... ms': async () => {
      const locks = await locksOn('memory', { restartGuard: 20_000 });
      return messageOf(RangeError, locks.acquire('key', { ttl: 30_000 }));
    },
  });
});

/** Starts an application with these modules; returns the message of the error. */
function refusalOf(
  ...imports: Parameters<typeof Test.createTestingModule>[0]['imports'] & object
): Promise<string> {
  const module = Test.createTestingModule({ imports, providers: [Beats] }).setLogger(new LogLines());
  return messageOf(
    Error,
    module.compile().then((compiled) => compiled.init()),
  );
}

@Injectable()
class Bills {
  constructor(@InjectLockService('billing') readonly locks: LockService) {}
}

@Module({ imports: [RedlockModule.forRoot(memory)], providers: [Bills] })
class Billing {}

@Injectable()
class Digest {
  @WithLock('digest', { oncePerTick: true })
  async send(): Promise<void> {}
}

@Module({ providers: [Digest] })
class Unscheduled {}

describe('docs/errors.md quotes each message of the board', () => {
  /** Asks a board to release a lock; returns the text of the answer. */
  const answered = async (headers: Record<string, string>, allowForceRelease: boolean): Promise<string> => {
    const board = RedlockBoardModule.forRoot({ path: '/locks', public: true, allowForceRelease });
    app = await startApp({ imports: [board] });
    await app.listen(0, '127.0.0.1');
    const all = { 'content-type': 'application/json', ...headers };
    const url = `${await app.getUrl()}/locks/release`;
    return (await fetch(url, { method: 'POST', headers: all, body: '{}' })).text();
  };
  const own = { 'x-redlock-board': '1' };

  provoke('The board', {
    'This request comes from a page of another site.': () =>
      answered({ ...own, origin: 'http://elsewhere.example' }, true),
    'This board only shows locks': () => answered(own, false),
    'This page is available only under the names 127.0.0.1 and localhost.': async () =>
      whyNotLoopback({
        headers: { host: 'elsewhere.example:80' },
        socket: { localPort: 80 },
      } as IncomingMessage) ?? '',
  });
});

describe('docs/errors.md quotes each start-up error', () => {
  provoke('At start-up', {
    '@WithLock needs RedlockModule.forRoot({ nodes }) in the imports': () => refusalOf(),
    "@InjectLockService('...') needs RedlockModule.forRoot({ nodes, name: '...' })": () => refusalOf(Billing),
    'RedlockModule needs .forRoot({ nodes })': () => refusalOf(RedlockModule),
    'two decorators of this method lock ...': async () => {
      try {
        class Twice {
          @WithLock('key')
          @WithLock('key')
          async run(): Promise<void> {}
        }
        return Twice.name;
      } catch (error) {
        return (error as Error).message;
      }
    },
    'Two policies for one key': () =>
      refusalOf(
        RedlockModule.forRoot({ ...memory, locks: defineLocks({ a: { key: 'a' }, b: { key: 'a' } }) }),
      ),
    '... of ... Redis nodes are connected and ... are needed': async () => {
      const log = new LogLines();
      const nodes: RedisOptions = { port: 1 };
      app = await startApp({}, { ...PATIENT, nodes }, { logger: log });
      return log.of('error').join();
    },
    'to be for a method with @Cron or @Interval': () =>
      refusalOf(RedlockModule.forRoot(memory), ScheduleModule.forRoot(), Unscheduled),
  });
});

describe('docs/errors.md quotes each log line', () => {
  /** Starts an application on these nodes; returns its warnings. */
  async function warnedOf(nodes: RedlockModuleOptions['nodes'], log = new LogLines()): Promise<string> {
    app = await startApp({}, { nodes }, { logger: log });
    return log.of('warn').join();
  }

  const onServer = async (): Promise<string> => {
    server = await startRedis();
    return server.url;
  };

  provoke('In the log', {
    'Cannot reach Redis at ...': async () => warnedOf(NO_SERVER),
    'Lost the connection to Redis at ...': async () => {
      const log = new LogLines();
      await warnedOf(await onServer(), log);
      await server?.stop();
      await until(async () => log.of('error').length > 0);
      return log.of('error').join();
    },
    'a restart can forget locks that are held': async () => warnedOf(await onServer()),
    'Shut down while methods were running under locks on ...': async () => {
      const log = new LogLines();
      app = await startApp({}, { ...memory, shutdownTimeout: 10 }, { logger: log });
      const { running, ended } = untilLost(app.get(LockService));
      await running;
      await app.close();
      await ended;
      return log.of('warn').join();
    },
    'Closed while tasks were running under locks on ...': async () => {
      const lines: string[] = [];
      const say = (line: string): void => void lines.push(line);
      const logger = { debug: say, info: say, warn: say, error: say };
      const locks = createLocks({ ...memory, shutdownTimeout: 10, logger });
      const { running, ended } = untilLost(locks);
      await running;
      await locks.close();
      await ended;
      return lines.join();
    },
    'is called under a lock of ..., and waits until that lock ends': async () => {
      const log = new LogLines();
      app = await startApp({}, memory, { logger: log });
      const locks = app.get(LockService);
      const nested = { retry: { timeout: 100 } };
      await locks.withLock('key', () => locks.acquire('key', nested).catch(() => undefined));
      return log.of('warn').join();
    },
    'The thread for renewals has failed: ...': async () => {
      const log = new LogLines();
      const nodes = await onServer();
      // The sources have no compiled program of the thread beside them, like a bundle without the file.
      app = await startApp({}, { nodes, defaults: { renew: 'thread' } }, { logger: log });
      return log.of('error').join();
    },
    'locks with `ttl: ...`: below 1000 ms': async () => {
      const log = new LogLines();
      app = await startApp({}, memory, { logger: log });
      await app.get(LockService).withLock('key', { ttl: 500 }, () => undefined);
      return log.of('warn').join();
    },
    'probably stands for a missing value': async () => {
      const log = new LogLines();
      app = await startApp({}, memory, { logger: log });
      await app.get(LockService).withLock('order:undefined', () => undefined);
      return log.of('warn').join();
    },
    '... locks ... inside an open transaction': async () => {
      const log = new LogLines();
      app = await startApp({}, { ...memory, inTransaction: () => true }, { logger: log });
      await app.get(LockService).withLock('key', () => undefined);
      return log.of('warn').join();
    },
    '... locks ... in a transaction that has already ended': async () => {
      const log = new LogLines();
      const transaction = {};
      const hooks = {
        inTransaction: () => transaction,
        afterTransaction: (callback: () => void) => callback(),
      };
      app = await startApp({}, { ...memory, ...hooks }, { logger: log });
      for (const key of ['first', 'second'])
        await app.get(LockService).withLock(key, { release: 'afterCommit' }, () => undefined);
      return log.of('warn').join();
    },
  });
});
