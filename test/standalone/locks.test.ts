import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { createLocks, currentLock, defineLocks, type Locks } from '../../lib/standalone/index.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

/** A logger that keeps its lines. */
class Lines {
  readonly lines: string[] = [];
  readonly debug = (): void => undefined;
  readonly info = (message: string): void => void this.lines.push(message);
  readonly warn = this.info;
  readonly error = this.info;
}

const opened: Locks[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
});

function create(options: Partial<Parameters<typeof createLocks>[0]> = {}): Locks {
  const locks = createLocks({
    ...{ nodes: redis.url, restartGuard: false, logger: new Lines(), ...PATIENT },
    ...options,
  });
  opened.push(locks);
  return locks;
}

describe('createLocks', () => {
  test('makes a service whose locks exclude those of another one', async () => {
    const [one, other] = [create(), create()];
    await one.withLock('key', async (lock) => {
      expect(currentLock()).toBe(lock);
      expect(one.current('key')).toBe(lock);
      await expect(other.tryAcquire('key')).resolves.toBeNull();
    });
    const lock = await other.acquire('key');
    await expect(one.inspect('key')).resolves.toMatchObject({ held: true, id: lock.id });
    await lock.release();
  });

  test('takes declared locks with their overrides', async () => {
    const declared = defineLocks({ order: { key: (id: number) => `order:${id}`, ttl: 5_000 } });
    const locks = create({ locks: declared, strict: true, overrides: { order: { ttl: 4_000 } } });
    await using lock = await locks.acquire(declared.order, 7);
    expect(lock.keys).toEqual(['order:7']);
    expect(lock.remaining()).toBeLessThanOrEqual(4_000);
    await expect(locks.acquire('other')).rejects.toThrow('declare');
  });

  test.each([
    [
      'an option of the module alone',
      { nodes: 'memory', isGlobal: true },
      'Unknown option `isGlobal` in `createLocks`',
    ],
    [
      'a URL with a password in place of options',
      'redis://:secret@a',
      'options of `createLocks` to be an object, got a string',
    ],
    ['no nodes', {}, 'Expected `nodes`'],
    [
      'a logger without `info`',
      { nodes: 'memory', logger: { warn: () => undefined } },
      'Expected `logger` to be an object with',
    ],
  ])('refuses %s with the rule', (_what, options, message) => {
    expect(() => createLocks(options as never)).toThrow(message);
  });

  test('writes to the logger, whose errors do no harm', async () => {
    const logger = new Lines();
    await create({ nodes: 'memory', logger }).withLock('a', { ttl: 500 }, () => undefined);
    expect(logger.lines).toEqual([
      expect.stringContaining("nodes: 'memory' locks inside this process only"),
      expect.stringContaining('locks with `ttl: 500`'),
    ]);
    const broken = (): never => {
      throw new Error('the disk of the log is full');
    };
    const silent = create({
      nodes: 'memory',
      logger: { debug: broken, info: broken, warn: broken, error: broken },
    });
    await expect(silent.withLock('a', { ttl: 500 }, () => 'ran')).resolves.toBe('ran');
  });
});

describe('close', () => {
  test('waits for tasks, aborts and releases what `acquire` holds, refuses new calls and disconnects', async () => {
    let closed: Promise<void> | undefined;
    let handle;
    {
      await using locks = create();
      handle = await locks.acquire('kept');
      let end: (() => void) | undefined;
      const task = locks.withLock('task', () => new Promise<void>((resolve) => (end = resolve)));
      await until(async () => end !== undefined);
      closed = locks.close();
      expect(locks.closing.aborted).toBe(true);
      await expect(locks.acquire('new')).rejects.toThrow('shutting down');
      expect(handle.isHeld()).toBe(true);
      end!();
      await task;
    }
    await closed;
    expect(handle.signal.aborted).toBe(true);
    const next = create();
    await using lock = await next.acquire(['kept', 'task'], { retry: false });
    expect(lock.isHeld()).toBe(true);
  });

  test('names the locks of tasks that run longer than `shutdownTimeout`', async () => {
    const logger = new Lines();
    const locks = create({ shutdownTimeout: 10, logger });
    let end: (() => void) | undefined;
    const task = locks.withLock('late', () => new Promise<void>((resolve) => (end = resolve)));
    await until(async () => end !== undefined);
    await locks.close();
    expect(logger.lines).toEqual([
      'Closed while tasks were running under locks on "late". These locks expire with their ttl. ' +
        'Let the tasks heed `closing`, or give a longer `shutdownTimeout`.',
    ]);
    end!();
    await expect(task).rejects.toMatchObject({ code: 'LOCK_LOST' });
  });
});
