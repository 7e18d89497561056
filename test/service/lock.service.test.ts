import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { getEventListeners } from 'node:events';
import type { Redis } from 'ioredis';
import {
  type AcquireOptions,
  currentLock,
  type LockHandle,
  LockHeldError,
  LockLostError,
  LockService,
  LockUnavailableError,
} from '../../lib/index.js';
import { countLocks, heldKeys } from '../support/core.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { ScriptedNode } from '../support/scripted-node.js';
import { until } from '../support/until.js';

/** Milliseconds. No lock expires by accident, even if the machine stalls for a moment. */
const TTL = 30_000;

let redis: RedisServer;
let looker: Redis;
let apps: INestApplication[];
let locks: LockService;
let others: LockService;

beforeAll(async () => {
  redis = await startRedis();
  looker = redis.client();
  const options = {
    nodes: redis.url,
    defaults: { ttl: TTL, retry: { timeout: 20_000, delay: 5, jitter: 5 } },
  };
  apps = await Promise.all([
    startApp({}, { ...options, owner: 'me' }),
    startApp({}, { ...options, owner: 'them' }),
  ]);
  [locks, others] = apps.map((app) => app.get(LockService)) as [LockService, LockService];
});
afterAll(async () => {
  await Promise.all(apps.map((app) => app.close()));
  await redis.stop();
});
afterEach(async () => {
  const keys = await heldKeys(looker);
  await looker.flushall();
  if (keys.length > 0) throw new Error(`left behind: ${keys.join()}`);
});

const free = async (): Promise<boolean> => (await countLocks(looker)) === 0;
const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

describe('acquire', () => {
  test('`acquire` returns a lock that is lost at the end of its ttl after its `maxHold` has passed', async () => {
    const lock = await locks.acquire('key', { ttl: 200, maxHold: 1 });
    const { signal } = lock;
    await until(() => signal.aborted);
    expect((signal.reason as Error).message).toContain('its maxHold of 1 ms had passed');
    await lock.release();
  });

  test('`acquire` returns a handle whose record stays in Redis until the release', async () => {
    const lock = await locks.acquire('key');
    await expect(looker.get('lock:{key}')).resolves.toMatch(
      new RegExp(`^H-${lock.fencingToken}:${lock.id}:\\d+:me$`),
    );
    expect(lock).toMatchObject({ keys: ['key'], id: expect.stringMatching(/^[0-9a-f]{32}$/) });
    expect(lock.isHeld()).toBe(true);
    expect(lock.remaining()).toBeGreaterThan(0);
    expect(lock.remaining()).toBeLessThan(TTL);
    expect(() => lock.assertHeld()).not.toThrow();
    expect(lock.signal.aborted).toBe(false);

    await lock.release();
    await expect(free()).resolves.toBe(true);
    expect(lock.isHeld()).toBe(false);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
    expect(lock.signal.aborted).toBe(false);
    await lock.release();
  });

  test('`acquire` waits for the holder, and after the timeout rejects with a LockHeldError that names the holder', async () => {
    const lock = await others.acquire('key');
    const error = await failureOf(locks.acquire('key', { retry: { timeout: 2_000 } }));
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject({ owner: 'them', keys: ['key'] });

    const waiting = locks.acquire('key');
    await lock.release();
    await (await waiting).release();
  });

  test('`acquire` gives every lock its own id (S5)', async () => {
    const ids = new Set<string>();
    for (let i = 0; i < 20; i++) {
      const lock = await locks.acquire('key');
      ids.add(lock.id);
      await lock.release();
    }
    expect(ids.size).toBe(20);
  });

  test('`acquire` returns a handle that `await using` releases at the end of the block, also after an error', async () => {
    const block = async (fail: boolean): Promise<void> => {
      await using lock = await locks.acquire('key');
      expect(lock.isHeld()).toBe(true);
      if (fail) throw new Error('own');
    };
    await block(false);
    await expect(free()).resolves.toBe(true);
    await expect(block(true)).rejects.toThrow('own');
    await expect(free()).resolves.toBe(true);
  });
});

describe('tryAcquire', () => {
  test('`tryAcquire` returns a handle, or null when another caller holds the lock', async () => {
    const lock = await locks.tryAcquire('key');
    expect(lock?.isHeld()).toBe(true);
    await expect(others.tryAcquire('key')).resolves.toBeNull();
    await lock?.release();
  });

  test('`tryAcquire` rejects with LockUnavailableError, and does not return null, when Redis is down', async () => {
    const server = await startRedis();
    const app = await startApp({}, { nodes: server.url });
    await server.kill();
    await expect(app.get(LockService).tryAcquire('key')).rejects.toBeInstanceOf(LockUnavailableError);
    await app.close();
    await server.stop();
  });
});

describe('several keys', () => {
  test('a lock on several keys has its keys sorted and without duplicates', async () => {
    const lock = await locks.acquire(['b', 'a', 'b', 'c']);
    expect(lock.keys).toEqual(['a', 'b', 'c']);
    expect((await heldKeys(looker)).toSorted()).toEqual(['lock:{a}', 'lock:{b}', 'lock:{c}']);
    await lock.release();
  });

  test('callers that give the same keys in different orders do not deadlock', async () => {
    const done: string[] = [];
    const work = async (service: LockService, name: string, keys: string[]): Promise<void> => {
      for (let i = 0; i < 5; i++) await service.withLock(keys, async () => void done.push(name));
    };
    await Promise.all([
      work(locks, 'one', ['a', 'b']),
      work(others, 'two', ['b', 'a']),
      work(others, 'three', ['b', 'c']),
    ]);
    expect(done).toHaveLength(15);
  });
});

describe('withLock', () => {
  test.each([[undefined], [null], [0], [''], ['result'], [{ a: 1 }]])(
    '`withLock` returns the result of the task: %p',
    async (value) => {
      await expect(locks.withLock('key', () => value)).resolves.toBe(value);
      await expect(locks.withLock('key', undefined, async () => value)).resolves.toBe(value);
      await expect(locks.withLock('key', { ttl: 60_000 }, async () => value)).resolves.toBe(value);
    },
  );

  test.each([[undefined], ['text'], [new Error('own')]])(
    '`withLock` rejects with the error of the task: %p',
    async (reason) => {
      const fail = async (): Promise<never> => {
        throw reason;
      };
      await expect(locks.withLock('key', fail)).rejects.toBe(reason);
      await expect(
        locks.withLock('key', () => {
          throw reason;
        }),
      ).rejects.toBe(reason);
    },
  );

  test('`withLock` releases its lock before it resolves', async () => {
    await locks.withLock('key', async (lock) => expect(lock.isHeld()).toBe(true));
    await expect(free()).resolves.toBe(true);
  });

  test("`withLock` rejects with LockLostError after a loss, unless the task threw or `onLost` is 'ignore'", async () => {
    const lose = async (lock: LockHandle): Promise<string> => {
      await looker.del('lock:{key}');
      await lock.extend().catch(() => undefined);
      expect(lock.signal.reason).toBeInstanceOf(LockLostError);
      return 'result';
    };
    await expect(locks.withLock('key', lose)).rejects.toBeInstanceOf(LockLostError);
    await expect(locks.withLock('key', { onLost: 'ignore' }, lose)).resolves.toBe('result');
    await expect(
      locks.withLock('key', async (lock) => {
        await lose(lock);
        throw new Error('own');
      }),
    ).rejects.toThrow('own');
  });

  test('`withLock` lets the task release its lock early', async () => {
    await expect(
      locks.withLock('key', async (lock) => {
        await lock.release();
        return free();
      }),
    ).resolves.toBe(true);
  });
});

test('a nested call for the lock of its own caller is refused with advice to set `reentrant`', async () => {
  const nested = locks.withLock('a', () => locks.acquire('a', { retry: false }));
  await expect(nested).rejects.toMatchObject({ code: 'LOCK_HELD', heldByCaller: true });
  await expect(nested).rejects.toThrow('Set `reentrant` to join');
});

describe('current', () => {
  test('`current()` is undefined outside of locked code, also while a lock from `acquire` is held', async () => {
    const lock = await locks.acquire('key');
    expect(locks.current()).toBeUndefined();
    expect(currentLock()).toBeUndefined();
    await lock.release();
  });

  test('`current()` is the innermost lock, or the innermost lock of a given key, across awaits and timers', async () => {
    await locks.withLock(['a', 'b'], async (outer) => {
      expect(locks.current()).toBe(outer);
      await locks.withLock('c', async (inner) => {
        await new Promise((resolve) => setTimeout(resolve, 1));
        expect(locks.current()).toBe(inner);
        expect(currentLock('c')).toBe(inner);
        expect(locks.current('b')).toBe(outer);
        expect(locks.current('d')).toBeUndefined();
      });
      expect(locks.current()).toBe(outer);
    });
    expect(locks.current()).toBeUndefined();
  });

  test('`current()` returns only locks of its own service, and `currentLock()` returns locks of all services', async () => {
    await locks.withLock('a', async (lock) => {
      expect(others.current()).toBeUndefined();
      await others.withLock('b', async (other) => {
        expect(others.current()).toBe(other);
        expect(locks.current()).toBe(lock);
        expect(currentLock()).toBe(other);
        expect(currentLock('a')).toBe(lock);
      });
    });
  });

  test('`current()` is a different lock in each concurrent call', async () => {
    const keys = await Promise.all(
      ['a', 'b', 'c'].map((key) => locks.withLock(key, async () => locks.current()?.keys.join())),
    );
    expect(keys).toEqual(['a', 'b', 'c']);
  });
});

describe('signal', () => {
  test("`acquire` with a signal that has already aborted rejects with the signal's reason, without a request to the store", async () => {
    // This test has its own store, because a server also counts late requests of earlier tests.
    const store = new ScriptedNode();
    const other = await startApp({}, { nodes: { openStore: () => store } });
    apps.push(other);
    const reason = new Error('too late');
    const signal = AbortSignal.abort(reason);
    await expect(other.get(LockService).acquire('key', { signal })).rejects.toBe(reason);
    // Requests are sent at the end of the turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    expect(store.requests).toEqual([]);
  });

  test("a waiting `acquire` or `withLock` rejects at once with the signal's reason when the signal aborts", async () => {
    const lock = await others.acquire('key');
    for (const wait of [
      (options: AcquireOptions) => locks.acquire('key', options),
      (options: AcquireOptions) => locks.withLock('key', options, () => 'never'),
    ]) {
      const controller = new AbortController();
      const waiting = failureOf(
        wait({ signal: controller.signal, retry: { timeout: 60_000, delay: 30_000 } }),
      );
      await new Promise((resolve) => setImmediate(resolve));
      const start = performance.now();
      controller.abort('enough');
      await expect(waiting).resolves.toBe('enough');
      expect(performance.now() - start).toBeLessThan(10_000);
      expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
    }
    await lock.release();
  });

  test('a signal that aborts has no effect on a lock that is already acquired', async () => {
    const controller = new AbortController();
    const lock = await locks.acquire('key', { signal: controller.signal });
    controller.abort();
    expect(lock.isHeld()).toBe(true);
    expect(lock.signal.aborted).toBe(false);
    await lock.release();
  });

  test('one signal cancels a thousand waiters through one listener, and leaves no listener and no key behind', async () => {
    const lock = await others.acquire('key');
    const controller = new AbortController();
    const { signal } = controller;

    const waiters = Array.from({ length: 1_000 }, () =>
      failureOf(locks.acquire('key', { signal, ttl: 60_000 })),
    );
    await until(() => getEventListeners(signal, 'abort').length > 0);
    // Node.js warns of a leak when a signal has more than ten listeners.
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    controller.abort(new Error('enough'));

    await expect(Promise.all(waiters)).resolves.toEqual(waiters.map(() => signal.reason as Error));
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    await lock.release();
    // A request that was under way at the cancellation may store a key. The library must release that key (S6).
    await until(free);
    await new Promise((resolve) => setImmediate(resolve));
    await expect(free()).resolves.toBe(true);
  });

  test('a signal that aborts while the lock is being granted leaves no key in Redis', async () => {
    for (let i = 0; i < 50; i++) {
      const controller = new AbortController();
      const acquiring = failureOf(locks.acquire(`key${i}`, { signal: controller.signal, ttl: 60_000 }));
      setImmediate(() => controller.abort(new Error('enough')));
      const error = await acquiring;
      if (!error) await looker.del(`lock:{key${i}}`);
    }
    await expect(until(free)).resolves.toBeUndefined();
  });
});

type Method = 'acquire' | 'tryAcquire' | 'withLock';
const callOf = (service: LockService, method: Method, ...args: unknown[]): Promise<unknown> =>
  Reflect.apply(service[method], service, args) as Promise<unknown>;
const task = (): string => 'never';

describe('LockService, without a request to the store,', () => {
  // These tests have their own store, because a server also counts late requests of earlier tests.
  const store = new ScriptedNode();
  let service: LockService;
  beforeAll(async () => {
    const app = await startApp({}, { nodes: { openStore: () => store } });
    apps.push(app);
    service = app.get(LockService);
  });
  beforeEach(() => {
    store.requests.length = 0;
  });
  afterEach(async () => {
    // Requests are sent at the end of the turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    if (store.requests.length > 0) throw new Error(`sent ${store.requests.join()}`);
  });

  const call = (method: Method, ...args: unknown[]): Promise<unknown> => callOf(service, method, ...args);

  test.each([[''], [[]], [['a', '']], [7], [undefined], ['}x'], [[['a']]]])(
    '`acquire`, `tryAcquire` and `withLock` refuse the key %j',
    async (key) => {
      const rule =
        /Expected `key` to be a string that is not empty and does not begin with "}", or an array of such strings/;
      await expect(call('acquire', key)).rejects.toThrow(rule);
      await expect(call('tryAcquire', key)).rejects.toThrow(rule);
      await expect(call('withLock', key, task)).rejects.toThrow(rule);
    },
  );

  test.each<[unknown, string | RegExp]>([
    [{ ttl: 1 }, 'Expected `ttl` to be a whole number of milliseconds, at least 10, got 1'],
    [
      { retry: true },
      'Expected `retry` to be `false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`, got true',
    ],
    [{ permits: 0 }, 'Expected `permits` to be a whole number from 1 to 1000, got 0'],
    [{ mode: 'shared', permits: 2 }, 'Expected `permits` without a `mode`'],
    [{ mode: 'shared', minHold: 100 }, "Expected no `minHold` with `mode: 'shared'`, got 100"],
    [{ label: 7 }, 'Expected `label` to be a string that is not empty, got 7'],
    [{ signal: 'stop' }, "Expected `signal` to be an AbortSignal, got 'stop'"],
    [{ retries: 3 }, /^Unknown option `retries` in `\w+`\. Did you mean `retry`\?$/],
    [{ wait: 3 }, /^Unknown option `wait` in `\w+`\. The options are `ttl`,.* `signal`$/],
    [{ delay: 3 }, /^Unknown option `delay` in `\w+`\. It belongs in `retry`: `retry: \{ delay: \.{3} \}`$/],
    [{ nodes: [] }, /^Unknown option `nodes` in `\w+`\. It is an option of `RedlockModule\.forRoot`$/],
    [
      { onBusy: 'skip' },
      /^Unknown option `onBusy` in `\w+`\. It is for `@WithLock` and `oncePerTick`; here catch/,
    ],
    [null, /^Expected the options of `\w+` to be an object, got null$/],
  ])('`acquire` and `withLock` refuse the options %j', async (options, message) => {
    await expect(call('acquire', 'key', options)).rejects.toThrow(message);
    await expect(call('withLock', 'key', options, task)).rejects.toThrow(message);
  });

  test.each<['acquire' | 'tryAcquire', object, string]>([
    ['acquire', { onLost: 'ignore' }, 'Unknown option `onLost` in `acquire`. It is for `withLock`; here the'],
    ['tryAcquire', { onLost: 'ignore' }, 'Unknown option `onLost` in `tryAcquire`. It is for `withLock`'],
    [
      'acquire',
      { release: 'afterCommit' },
      'Unknown option `release` in `acquire`. It is for `withLock`; here call `release()` yourself, after the commit',
    ],
    [
      'tryAcquire',
      { release: 'afterCommit' },
      'Unknown option `release` in `tryAcquire`. It is for `withLock`',
    ],
    [
      'tryAcquire',
      { retry: { timeout: 1_000 } },
      'in `tryAcquire`. `tryAcquire` makes one attempt; to wait, use `acquire`',
    ],
    ['tryAcquire', { retry: false }, 'Unknown option `retry` in `tryAcquire`'],
    [
      'tryAcquire',
      { attempts: 3 },
      '`attempts` in `tryAcquire`. `tryAcquire` makes one attempt; to wait, use `acquire`',
    ],
    ['tryAcquire', { retries: 3 }, '`retries` in `tryAcquire`. The options are `ttl`, `renew`'],
  ])('LockService refuses an option that %s does not have: %j', async (method, options, message) => {
    await expect(call(method, 'key', options)).rejects.toThrow(message);
  });

  test('`tryAcquire` refuses null in place of its options', async () => {
    await expect(call('tryAcquire', 'key', null)).rejects.toThrow(
      'Expected the options of `tryAcquire` to be an object, got null',
    );
  });

  test('`withLock` refuses a task that is not a function', async () => {
    await expect(call('withLock', 'key', {}, 'task')).rejects.toThrow(
      "Expected `task` to be a function, got 'task'",
    );
    await expect(call('withLock', 'key')).rejects.toThrow('Expected `task` to be a function, got undefined');
  });
});

test.each([
  'ttl',
  'retry',
  'onBusy',
  'renew',
  'maxBlocked',
  'maxHold',
  'minHold',
  'reentrant',
  'mode',
  'permits',
  'onLost',
  'release',
  'label',
  'signal',
  'oncePerTick',
  'instance',
])('`%s: undefined` in the options counts as omitted', async (name) => {
  const nothing = { [name]: undefined };
  for (const method of ['acquire', 'tryAcquire'] as const) {
    const lock = (await callOf(locks, method, 'key', nothing)) as LockHandle;
    expect(lock.remaining()).toBeGreaterThan(TTL / 2);
    await lock.release();
  }
  await expect(callOf(locks, 'withLock', 'key', nothing, task)).resolves.toBe('never');
});

describe('inspection and forced release', () => {
  test('`inspect` shows the holder of a key, and `list` lists held locks', async () => {
    await using lock = await others.acquire('key');
    await expect(locks.inspect('key')).resolves.toMatchObject({ held: true, id: lock.id, owner: 'them' });
    await expect(locks.inspect('other')).resolves.toMatchObject({ held: false });
    const listed: string[] = [];
    for await (const { key } of locks.list({ prefix: 'k' })) listed.push(key);
    expect(listed).toEqual(['key']);
  });

  test('`forceRelease` releases a lock, and notifies its holder', async () => {
    const lock = await others.acquire('key', { ttl: 3_000 });
    const { signal } = lock;
    await expect(locks.forceRelease('key')).resolves.toBe(true);
    await expect(locks.forceRelease('key')).resolves.toBe(false);
    await until(() => signal.aborted);
    expect(signal.reason).toBeInstanceOf(LockLostError);
  });

  test('`forceRelease` of a lock makes the `withLock` call that holds it reject with LockLostError', async () => {
    const run = locks.withLock('key', async ({ signal }) => {
      await locks.forceRelease('key');
      expect(signal.aborted).toBe(true);
    });
    await expect(run).rejects.toBeInstanceOf(LockLostError);
  });

  test.each([
    ['a list', ['a', 'b']],
    ['an empty string', ''],
    ['a number', 7],
    ['a string that begins with }', '}a'],
  ])('`inspect` and `forceRelease` refuse %s as the key', async (_name, key) => {
    const rule = 'Expected `key` to be a string that is not empty and does not begin with "}"';
    await expect(locks.inspect(key as string)).rejects.toThrow(rule);
    await expect(locks.forceRelease(key as string)).rejects.toThrow(rule);
  });

  test.each<[unknown, string]>([
    [{ id: '' }, "Expected `id` to be the `id` of a holder, got ''"],
    [{ id: 7 }, 'Expected `id` to be the `id` of a holder, got 7'],
    [{ owner: 'me' }, 'Unknown option `owner` in `forceRelease`. The options are `id`'],
    [null, 'Expected the options of `forceRelease` to be an object, got null'],
  ])('`forceRelease` refuses the options %j', async (options, message) => {
    await expect(locks.forceRelease('key', options as object)).rejects.toThrow(message);
  });

  test('`forceRelease` with an `id` releases only the lock of that holder', async () => {
    await using lock = await others.acquire('key', { ttl: 60_000 });
    await expect(locks.forceRelease('key', { id: '0'.repeat(32) })).resolves.toBe(false);
    await expect(locks.inspect('key')).resolves.toMatchObject({ held: true, id: lock.id });
    await expect(locks.forceRelease('key', { id: lock.id })).resolves.toBe(true);
    await expect(locks.inspect('key')).resolves.toMatchObject({ held: false, holders: [] });
  });

  test('`list` throws at once for invalid options', () => {
    expect(() => locks.list({ prefix: 7 } as never)).toThrow('Expected `prefix` to be a string, got 7');
  });
});
