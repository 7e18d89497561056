import { fork } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { createLocks, defineLocks, LockHeldError, type Locks } from '../../../lib/standalone/index.js';
import type { LockEvent } from '../../../lib/telemetry/lock-telemetry.events.js';
import { bundled } from '../../support/bundle.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

/** A schedule whose latest tick is the first of January, so that every call of a test is for the same tick. */
const YEARLY = '0 0 1 1 *';
const NEW_YEAR = Date.UTC(new Date().getUTCFullYear(), 0, 1);
const UTC = { timeZone: 'UTC' };

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

const opened: Locks[] = [];
const events: LockEvent[] = [];
afterEach(async () => {
  jest.useRealTimers();
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
  events.length = 0;
});

/** An instance of the application. */
function instance(options: Partial<Parameters<typeof createLocks>[0]> = {}): Locks {
  const locks = createLocks({
    nodes: redis.url,
    restartGuard: false,
    logger: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
    onEvent: (event) => events.push(event),
    ...options,
  });
  opened.push(locks);
  return locks;
}

describe('`LockService.oncePerTick` with a cron expression', () => {
  test('runs a tick once when two instances fire at the same time, and not again on a late one', async () => {
    const [one, other, late] = [instance(), instance(), instance()];
    let runs = 0;
    const task = async (): Promise<string> => `run ${++runs}`;
    const results = await Promise.all(
      [one, other].map((locks) => locks.oncePerTick('reports', YEARLY, UTC, task)),
    );
    expect(results.toSorted()).toEqual(['run 1', undefined]);
    await expect(late.oncePerTick('reports', YEARLY, UTC, task)).resolves.toBeUndefined();
    expect(events.findLast(({ type }) => type === 'skipped')).toEqual({
      type: 'skipped',
      keys: ['reports'],
      label: 'other',
      mode: 'exclusive',
      reason: 'tick-ran',
      owner: expect.any(String),
      tick: NEW_YEAR,
    });
  });

  test('runs a tick once over processes of their own', async () => {
    const file = await bundled('test/fixtures/tick-job.ts');
    const firings = await Promise.all(
      Array.from({ length: 3 }, async () => {
        const child = fork(file, [redis.url], { execArgv: [] });
        cleanUpAfterTests(async () => void child.kill('SIGKILL'));
        const [ran] = (await once(child, 'message')) as [number];
        return ran;
      }),
    );
    expect(firings.toSorted()).toEqual([0, 0, 1]);
  });

  test('runs the next tick', async () => {
    const [one, other] = [instance(), instance()];
    const everySecond = '* * * * * *';
    await expect(one.oncePerTick('often', everySecond, () => 1)).resolves.toBe(1);
    await until(async () => (await other.oncePerTick('often', everySecond, () => 2)) === 2);
  });

  test('computes the tick in the time zone, also when the clocks change', async () => {
    // At 2:30 of the day on which Berlin repeats the hour from 2:00 to 3:00. The second 2:30 is the same tick.
    const ticks: (number | undefined)[] = [];
    const locks = instance({
      nodes: 'memory',
      onEvent: (event) => void (event.type === 'skipped' && ticks.push(event.tick)),
    });
    const fire = async (at: string, timeZone: string): Promise<unknown> => {
      jest.useFakeTimers({ now: new Date(at), doNotFake: ['nextTick', 'queueMicrotask', 'performance'] });
      return locks.oncePerTick(`night ${timeZone}`, '30 2 * * *', { timeZone }, () => at.slice(11, 16));
    };
    const [first, second] = ['2026-10-25T00:30:00.010Z', '2026-10-25T01:30:00.010Z'];
    expect([await fire(first, 'Europe/Berlin'), await fire(second, 'Europe/Berlin')]).toEqual([
      '00:30',
      undefined,
    ]);
    expect([await fire(first, 'UTC+1'), await fire(second, 'UTC+1')]).toEqual(['00:30', '01:30']);
    expect(ticks).toEqual([Date.parse('2026-10-25T00:30Z')]);
  });

  test('counts a run that threw, and gives the error to its caller', async () => {
    const locks = instance({ nodes: 'memory' });
    const failing = locks.oncePerTick('failing', YEARLY, () => {
      throw new Error('mine');
    });
    await expect(failing).rejects.toThrow('mine');
    await expect(locks.oncePerTick('failing', YEARLY, () => 'ran')).resolves.toBeUndefined();
  });

  test('skips a call while the lock is held, or fails, or calls the function of `onBusy`', async () => {
    const locks = instance({ nodes: 'memory' });
    await using held = await locks.acquire('busy');
    await expect(locks.oncePerTick('busy', YEARLY, () => 'ran')).resolves.toBeUndefined();
    expect(events).toContainEqual(expect.objectContaining({ type: 'skipped', reason: 'held' }));
    const refused = locks.oncePerTick('busy', YEARLY, { onBusy: 'throw', retry: false }, () => 'ran');
    await expect(refused).rejects.toBeInstanceOf(LockHeldError);
    const onBusy = ({ keys }: LockHeldError): string => `${keys} is held`;
    await expect(locks.oncePerTick('busy', YEARLY, { onBusy, retry: false }, () => 'ran')).resolves.toBe(
      'busy is held',
    );
    await held.release();
    await expect(locks.oncePerTick('busy', YEARLY, () => 'ran')).resolves.toBe('ran');
  });

  test('gives the lock with the options of the call to the task', async () => {
    const locks = instance({ nodes: 'memory' });
    const left = await locks.oncePerTick('options', YEARLY, { ttl: 3_000, label: 'report' }, (lock) =>
      lock.remaining(),
    );
    expect(left).toBeLessThanOrEqual(3_000);
    expect(events).toContainEqual(expect.objectContaining({ type: 'acquired', label: 'report' }));
  });

  test('takes a declared lock with its policy, also in a strict module', async () => {
    const declared = defineLocks({
      nightly: { key: 'nightly', ttl: 4_000 },
      tenant: { key: (id: number) => `tenant:${id}`, onBusy: () => 'busy' },
      readers: { key: 'readers', mode: 'shared' },
    });
    const locks = instance({ nodes: 'memory', locks: declared, strict: true });
    const first = await locks.oncePerTick(declared.nightly, YEARLY, UTC, ({ keys }) => keys);
    expect(first).toEqual(['nightly']);
    const bound = declared.tenant.for(7);
    expect(await locks.oncePerTick(bound, YEARLY, ({ keys }) => keys)).toEqual(['tenant:7']);
    expect(await locks.oncePerTick(bound, YEARLY, ({ keys }) => keys)).toBe('busy');
    await expect(locks.oncePerTick('nightly', YEARLY, () => 1)).rejects.toThrow('declare');
    await expect(locks.oncePerTick(declared.readers, YEARLY, () => 1)).rejects.toThrow('exclusive');
    const given = { ttl: 1 } as never;
    await expect(locks.oncePerTick(declared.nightly, YEARLY, given, () => 1)).rejects.toThrow(
      'It is an option of the declaration: change `ttl`',
    );
  });
});

describe('`LockService.oncePerTick` with an interval', () => {
  test('begins two runs at least the interval apart over two instances, less 10 %', async () => {
    const [one, other] = [instance(), instance()];
    const began: number[] = [];
    const task = (): number => began.push(performance.now());
    const asked = performance.now();
    await expect(one.oncePerTick('beat', 500, task)).resolves.toBe(1);
    await expect(other.oncePerTick('beat', 60_000, task)).resolves.toBeUndefined();
    await until(async () => (await other.oncePerTick('beat', 500, task)) === 2);
    expect(began[1]! - asked).toBeGreaterThanOrEqual(445);
  });
});

describe('`LockService.oncePerTick` refuses', () => {
  type Call = Parameters<Locks['oncePerTick']>;

  test.each<[what: string, schedule: unknown, options: object, message: string]>([
    ['a text that is no cron expression', 'daily', {}, "got 'daily': Unknown alias: dai"],
    ['a field out of range', '61 * * * *', UTC, "got '61 * * * *': Field value (61) is out of range"],
    [
      'a day that no year has',
      '0 0 31 2 *',
      UTC,
      "got '0 0 31 2 *': Something went wrong. No execution date was found in the next 8 years.",
    ],
    [
      'an unknown time zone',
      YEARLY,
      { timeZone: 'Europe/Berln' },
      "Expected `timeZone` to be the name of a time zone, such as 'Europe/Berlin' or 'UTC+2', got 'Europe/Berln'",
    ],
    [
      'a time zone of an interval',
      1_000,
      UTC,
      "Expected `timeZone` to be left out for an interval, which counts from the last run, got 'UTC'",
    ],
    [
      'an interval of zero',
      0,
      {},
      'Expected `schedule` to be a cron expression, or a whole number of milliseconds, at least 1, got 0',
    ],
    ['a schedule of another type', new Date(0), {}, 'Expected `schedule` to be a cron expression such as'],
    [
      'an offset',
      YEARLY,
      { utcOffset: 120 },
      "Give an offset as the `timeZone` of `oncePerTick`, such as 'UTC+2'",
    ],
    ['several holders', YEARLY, { permits: 2 }, 'All holders of such a lock would run the tick'],
    ['an unknown option', YEARLY, { tll: 5 }, 'Unknown option `tll` in `oncePerTick`. Did you mean `ttl`?'],
    ['an invalid option', YEARLY, { ttl: 5 }, 'Expected `ttl` to be'],
    [
      'a reaction that is none',
      YEARLY,
      { onBusy: 'wait' },
      "Expected `onBusy` to be 'throw', 'skip' or a function",
    ],
  ])('%s', async (_what, schedule, options, message) => {
    const locks = instance({ nodes: 'memory' });
    const call = ['job', schedule, options, () => 'ran'] as unknown as Call;
    await expect(locks.oncePerTick(...call)).rejects.toThrow(message);
  });

  test('a call whose last argument is no task', async () => {
    const call = ['job', YEARLY, () => 'ran', UTC] as unknown as Call;
    await expect(instance({ nodes: 'memory' }).oncePerTick(...call)).rejects.toThrow(
      'Expected `task` to be a function, the last argument, got',
    );
  });

  test('`oncePerTick` as an option of `acquire`, naming the method', async () => {
    const given = { oncePerTick: true } as never;
    await expect(instance({ nodes: 'memory' }).acquire('job', given)).rejects.toThrow(
      'here call `oncePerTick(key, schedule, task)` at each firing',
    );
  });
});
