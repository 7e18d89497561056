import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { type INestApplication, Injectable, type LoggerService } from '@nestjs/common';
import { Interval } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { LockService, RedlockModule, type RedlockModuleOptions, WithLock } from '../lib/index.js';
import { startApp } from './support/nest-app.js';
import { startRedis, startRedisNodes } from './support/redis-server.js';
import { until } from './support/until.js';

// These tests provoke the messages that docs/troubleshooting.md quotes, and check that each quotation matches a
// message.

const page = readFileSync(join(import.meta.dirname, '../docs/troubleshooting.md'), 'utf8');
const quoted = [...page.matchAll(/^ *```text\n(.*?)```$/gms)]
  .flatMap(([, block = '']) => block.split('\n'))
  .map((line) => line.trim())
  .filter((line) => line !== '');

/** Makes a pattern of the beginning of a message; `...` in the quotation stands for any text. */
function pattern(quotation: string): RegExp {
  const parts = quotation.split('...').map((part) => part.replaceAll(/[*+?^${}()|[\]\\.]/g, '\\$&'));
  return new RegExp(`^${parts.join('.+')}`, 's');
}

/** All lines of the log, at every level, and all messages of errors. */
const said: string[] = [];
const hear = (message: unknown): void => void said.push(String(message));
const logger: LoggerService = { log: hear, warn: hear, error: hear, debug: hear };

/** Records the message of the error with which a promise rejects. */
async function say(failing: Promise<unknown>): Promise<void> {
  await failing.then(
    (value) => {
      throw new Error(`it succeeded with ${String(value)}`);
    },
    (error: Error) => hear(error.message),
  );
}

const once = { retry: false } as const;
const short = { retry: { timeout: 50 } } as const;

async function appWith(
  options: RedlockModuleOptions,
  ...providers: (new () => object)[]
): Promise<INestApplication> {
  return startApp({ providers }, options, { logger });
}

async function locksOn(options: RedlockModuleOptions): Promise<LockService> {
  return (await appWith(options)).get(LockService);
}

/** Starts an application that must fail to start, and records the message. */
async function refused(...imports: Parameters<typeof Test.createTestingModule>[0]['imports'] & object) {
  const module = Test.createTestingModule({ imports, providers: [Tasks] }).setLogger(logger);
  await say(module.compile().then((compiled) => compiled.init()));
}

@Injectable()
class Tasks {
  @Interval(60_000)
  @WithLock('tick', { oncePerTick: true })
  async tick(): Promise<void> {}

  @WithLock('busy', { onBusy: 'skip', retry: false })
  async busy(): Promise<void> {}
}

const situations: Readonly<Record<string, () => Promise<void>>> = {
  'Redis is down': async () => {
    // Neither tests nor other programs listen on this low port.
    const locks = await locksOn({ nodes: 'redis://127.0.0.1:1' });
    await say(locks.acquire('key', once));
  },
  'Redis is killed and restarted': async () => {
    const server = await startRedis();
    await locksOn({ nodes: server.url });
    await server.kill();
    await until(async () => said.some((line) => line.startsWith('Lost the connection')));
    await server.restart();
    await until(async () => said.some((line) => line.includes('is connected again')));
    await server.stop();
  },
  'Redis is paused for longer than a ttl': async () => {
    const server = await startRedis();
    const locks = await locksOn({ nodes: server.url, nodeTimeout: 100 });
    const { signal } = await locks.acquire('key', { ttl: 600 });
    server.pause();
    await say(locks.acquire('other', once));
    await until(async () => signal.aborted);
    server.resume();
  },
  'Redis loses its data': async () => {
    const server = await startRedis();
    const { signal } = await (await locksOn({ nodes: server.url })).acquire('key', { ttl: 6_000 });
    await server.client().flushall();
    await until(async () => signal.aborted);
  },
  'the user of Redis may not subscribe to channels': async () => {
    const server = await startRedis();
    await server.client().call('ACL', 'SETUSER', 'few', 'on', '>secret', '~*', 'resetchannels', '+@all');
    const locks = await locksOn({ nodes: `redis://few:secret@127.0.0.1:${server.port}` });
    await locks.acquire('key');
    const giveUp = new AbortController();
    const waiting = locks.acquire('key', { signal: giveUp.signal }).catch(() => undefined);
    await until(async () => said.some((line) => line.includes('may not subscribe')));
    giveUp.abort();
    await waiting;
  },
  'three nodes have just started': async () => {
    const servers = await startRedisNodes(3);
    // The wait begins before the nodes are connected, and a busy machine may take seconds to connect them.
    const locks = await locksOn({ nodes: servers.map(({ url }) => url), waitForQuorum: 4_000 });
    await say(locks.acquire('key', once));
  },
  'a node is a replica': async () => {
    const server = await startRedis({ args: ['--replicaof', '127.0.0.1', '1'] });
    await refused(RedlockModule.forRoot({ nodes: server.url }));
  },
  'RedlockModule is imported wrongly': async () => {
    const memory = RedlockModule.forRoot({ nodes: 'memory' });
    await refused(memory, RedlockModule.forRoot({ nodes: 'memory', keyPrefix: 'other:' }));
    await refused();
    await say(Promise.resolve().then(() => RedlockModule.forRoot({ nodes: undefined! })));
  },
  'another caller holds the lock': async () => {
    const locks = await locksOn({ nodes: 'memory' });
    await locks.acquire('key');
    await say(locks.acquire('key', short));
    await say(locks.withLock('own', () => locks.acquire('own', once)));
  },
  'a method takes longer than maxHold': async () => {
    const locks = await locksOn({ nodes: 'memory' });
    const { signal } = await locks.acquire('key', { ttl: 300, maxHold: 100 });
    await until(async () => signal.aborted);
  },
  'a task is skipped': async () => {
    const app = await appWith({ nodes: 'memory' }, Tasks);
    const [tasks, locks] = [app.get(Tasks), app.get(LockService)];
    await tasks.tick();
    await tasks.tick();
    await locks.withLock('busy', () => tasks.busy());
    await app.close();
    await tasks.busy();
  },
  'the application closes before its methods end': async () => {
    const app = await appWith({ nodes: 'memory', shutdownTimeout: 10 });
    let begun = (): void => undefined;
    const running = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const task = ({ signal }: { signal: AbortSignal }): Promise<void> => {
      begun();
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
    };
    const ended = say(app.get(LockService).withLock('key', task));
    await running;
    await app.close();
    await ended;
  },
  'a lock is acquired inside a transaction': async () => {
    const locks = await locksOn({ nodes: 'memory', inTransaction: () => true });
    await locks.withLock('key', () => undefined);
  },
};

describe('docs/troubleshooting.md', () => {
  test.each(Object.keys(situations))('the library logs or throws a message when %s', async (name) => {
    const before = said.length;
    await situations[name]!();
    expect(said.length).toBeGreaterThan(before);
  });

  test.each(quoted)(
    'docs/troubleshooting.md quotes a message that the library logs or throws: %s',
    (quotation) => {
      expect(said.filter((line) => pattern(quotation).test(line))).not.toEqual([]);
    },
  );

  test('no message that the library logs or throws matches a wrong quotation', () => {
    expect(quoted.length).toBeGreaterThan(15);
    const wrong = pattern('Lost the connection to Redis at ...: all is well');
    expect(said.filter((line) => wrong.test(line))).toEqual([]);
  });
});
