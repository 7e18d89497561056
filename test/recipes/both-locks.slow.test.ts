import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { Redis } from 'ioredis';
import { LockService } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { underBoth } from './both-locks.js';

const COMPARE_AND_DELETE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0";

describe('a migration from an old lock to a new lock, with a step "both" that takes both locks', () => {
  let redis: Redis;
  let app: INestApplication;
  let locks: LockService;
  let key: string;
  /** The number of tasks that run now. */
  let running = 0;
  /** The largest number of tasks that ran at the same time. */
  let most = 0;

  beforeAll(async () => {
    const server = await startRedis();
    redis = new Redis(server.url);
    app = await startApp({}, { nodes: server.url });
    locks = app.get(LockService);
  });
  beforeEach(() => {
    key = randomUUID();
    running = most = 0;
  });
  afterAll(async () => {
    await app.close();
    await redis.quit();
  });

  /** Runs a task under a hand-written lock, which many applications have. */
  async function underOld<T>(task: () => Promise<T>): Promise<T> {
    const id = randomUUID();
    await until(async () => (await redis.set(key, id, 'PX', 30_000, 'NX')) === 'OK');
    try {
      return await task();
    } finally {
      await redis.eval(COMPARE_AND_DELETE, 1, key, id);
    }
  }

  const work = (ended: Promise<void>) => async (): Promise<void> => {
    running += 1;
    most = Math.max(most, running);
    await ended;
    running -= 1;
  };

  /** Begins a task that runs until the caller ends it. */
  function begin(run: (task: () => Promise<void>) => Promise<void>): { end(): Promise<void> } {
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const done = run(work(ended));
    return {
      end: () => {
        end();
        return done;
      },
    };
  }

  const steps = {
    old: (task: () => Promise<void>) => underOld(task),
    both: (task: () => Promise<void>) => underBoth(underOld, locks, key, task),
    new: (task: () => Promise<void>) => locks.withLock(key, { retry: { timeout: 30_000 } }, task),
  };

  test.each([
    ['old', 'both'],
    ['both', 'old'],
    ['both', 'new'],
    ['new', 'both'],
  ] as const)(
    'a running task in migration step "%s" makes a task in migration step "%s" wait',
    async (first, second) => {
      const one = begin(steps[first]);
      await until(() => running === 1);
      const two = begin(steps[second]);
      // The second task would begin within 300 ms if its lock were free.
      await expect(until(() => running === 2, 300)).rejects.toThrow('did not come true');
      await one.end();
      await until(() => running === 1);
      await two.end();
      expect(most).toBe(1);
    },
  );

  test('tasks in the migration steps "old" and "new" can run at the same time', async () => {
    const tasks = [begin(steps.old), begin(steps.new)];
    await until(() => running === 2);
    await Promise.all(tasks.map((task) => task.end()));
    expect(most).toBe(2);
  });

  test('the loss of the old lock aborts the signal of the task', async () => {
    const old = new AbortController();
    await underBoth(
      (task) => task(old.signal),
      locks,
      key,
      async (signal) => {
        expect(signal.aborted).toBe(false);
        old.abort(new Error('lost the old lock'));
        expect(() => signal.throwIfAborted()).toThrow('lost the old lock');
      },
    );
  });

  test('the loss of the old lock ends the wait for the new lock', async () => {
    const old = new AbortController();
    await using lock = await locks.acquire(key);
    const waits = underBoth(
      (task) => task(old.signal),
      locks,
      key,
      () => Promise.reject(new Error('the task ran')),
    );
    old.abort(new Error('lost the old lock'));
    await expect(waits).rejects.toThrow('lost the old lock');
    expect(lock.isHeld()).toBe(true);
  });

  test.each([
    ['has a signal for its loss', new AbortController().signal],
    ['has no signal for its loss', undefined],
  ])('the loss of the new lock aborts the signal of the task, if the old lock %s', async (_, old) => {
    const run = underBoth(
      (task) => task(old),
      locks,
      key,
      async (signal) => {
        await locks.forceRelease(key);
        expect(signal.aborted).toBe(true);
      },
    );
    await expect(run).rejects.toThrow('released by force');
  });
});
