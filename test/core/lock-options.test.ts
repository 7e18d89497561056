import { describe, expect, test } from '@jest/globals';
import {
  checkLockKind,
  checkLockOptions,
  NO_RETRY,
  resolveLockOptions,
} from '../../lib/core/lock-options.js';

describe('resolveLockOptions', () => {
  test('`resolveLockOptions` fills in the documented defaults', () => {
    expect(resolveLockOptions({}, {})).toEqual({
      kind: { mode: 'exclusive' },
      ttl: 10_000,
      retry: { timeout: 5_000, attempts: Infinity, delay: 200, jitter: 100 },
      renew: true,
      maxBlocked: 60_000,
      minHold: 0,
      reentrant: false,
      onLost: 'throw',
      release: 'afterMethod',
    });
  });

  test('an option of the call overrides the same option of the module, even inside `retry`', () => {
    const resolved = resolveLockOptions(
      { ttl: 100, retry: { delay: 5 } },
      { ttl: 200, renew: false, retry: { delay: 6, timeout: 700 } },
    );
    expect(resolved).toMatchObject({ ttl: 100, renew: false, retry: { delay: 5, timeout: 700 } });
  });

  test.each([
    [{ maxBlocked: 5_000 }, {}, true],
    [{ maxBlocked: 5_000 }, { renew: false }, false],
    [{ maxBlocked: 5_000, renew: true }, { renew: 'thread' }, true],
  ] as const)(
    '`maxBlocked` is refused for a lock that no thread renews: %p with the defaults %p',
    (given, defaults, renew) => {
      expect(() => resolveLockOptions(given, defaults)).toThrow(
        `Expected \`maxBlocked\` with \`renew: 'thread'\`, got \`renew: ${renew}\``,
      );
    },
  );

  test('`maxBlocked` counts for a lock that the module lets a thread renew, and the module may have one for such locks', () => {
    expect(resolveLockOptions({ maxBlocked: 5_000 }, { renew: 'thread' }).maxBlocked).toBe(5_000);
    expect(resolveLockOptions({}, { maxBlocked: 5_000 }).renew).toBe(true);
    expect(resolveLockOptions({ renew: 'thread' }, { maxBlocked: 5_000 }).maxBlocked).toBe(5_000);
  });

  test('a lock has no `maxHold` unless the call or the module sets one', () => {
    expect(resolveLockOptions({}, {}).maxHold).toBeUndefined();
    expect(resolveLockOptions({}, { maxHold: 5 }).maxHold).toBe(5);
    expect(resolveLockOptions({ maxHold: 6 }, { maxHold: 5 }).maxHold).toBe(6);
  });

  test('an option with the value `undefined` counts as omitted', () => {
    expect(resolveLockOptions({ ttl: undefined, retry: undefined } as object, { ttl: 200 })).toMatchObject({
      ttl: 200,
      retry: { timeout: 5_000 },
    });
  });

  test('`retry` has no timeout when only the number of attempts is limited', () => {
    expect(resolveLockOptions({ retry: { attempts: 3 } }, {}).retry).toMatchObject({
      attempts: 3,
      timeout: Infinity,
    });
  });

  test.each([
    ['in the call', { retry: false as const }, {}],
    ['in the call, though the module has a retry', { retry: false as const }, { retry: { attempts: 9 } }],
    ['in the module', {}, { retry: false as const }],
  ])('there is only one attempt when `retry` is false: %s', (_where, given, defaults) => {
    expect(resolveLockOptions(given, defaults).retry).toEqual(NO_RETRY);
  });

  test('the `retry` of the call applies even if the module sets `retry: false`', () => {
    expect(resolveLockOptions({ retry: { attempts: 3 } }, { retry: false }).retry.attempts).toBe(3);
  });
});

describe('the kind of a lock', () => {
  test.each([
    [{}, { mode: 'exclusive' }],
    [{ mode: undefined, permits: undefined }, { mode: 'exclusive' }],
    [{ mode: 'exclusive' }, { mode: 'exclusive' }],
    [{ mode: 'shared' }, { mode: 'shared' }],
    [{ permits: 1 }, { mode: 'permits', permits: 1 }],
    [{ permits: 1_000 }, { mode: 'permits', permits: 1_000 }],
  ])('the options %j give a lock of the kind %j', (options, kind) => {
    expect(() => checkLockKind(options as object)).not.toThrow();
    expect(resolveLockOptions(options as object, {}).kind).toEqual(kind);
  });

  const without =
    'Leave out one of them: a lock with permits is another kind of lock, without readers and writers';
  const noMinHold =
    'A shared lock ends with its release; use an exclusive lock to keep runs a minimum time apart';

  test.each<[object, ErrorConstructor, string]>([
    [{ permits: 0 }, RangeError, 'Expected `permits` to be a whole number from 1 to 1000, got 0'],
    [{ permits: 1_001 }, RangeError, 'Expected `permits` to be a whole number from 1 to 1000, got 1001'],
    [{ permits: 2.5 }, RangeError, 'Expected `permits` to be a whole number from 1 to 1000, got 2.5'],
    [{ permits: NaN }, RangeError, 'Expected `permits` to be a whole number from 1 to 1000, got NaN'],
    [{ permits: '5' }, TypeError, "Expected `permits` to be a whole number from 1 to 1000, got '5'"],
    [{ permits: null }, TypeError, 'Expected `permits` to be a whole number from 1 to 1000, got null'],
    [
      { mode: 'read' },
      TypeError,
      "Expected `mode` to be 'shared' or 'exclusive' (for a number of holders give `permits`), got 'read'; readers take 'shared', writers 'exclusive'",
    ],
    [{ mode: 'WRITE' }, TypeError, "got 'WRITE'; readers take 'shared', writers 'exclusive'"],
    [
      { mode: 'permits' },
      TypeError,
      "Expected `mode` to be 'shared' or 'exclusive' (for a number of holders give `permits`), got 'permits'",
    ],
    [{ mode: true }, TypeError, "Expected `mode` to be 'shared' or 'exclusive'"],
    [
      { mode: 'shared', permits: 5 },
      TypeError,
      `Expected \`permits\` without a \`mode\`, got \`permits: 5\` with \`mode: 'shared'\`. ${without}`,
    ],
    [
      { mode: 'exclusive', permits: 1 },
      TypeError,
      `Expected \`permits\` without a \`mode\`, got \`permits: 1\` with \`mode: 'exclusive'\`. ${without}`,
    ],
    [
      { mode: 'shared', minHold: 50 },
      TypeError,
      `Expected no \`minHold\` with \`mode: 'shared'\`, got 50. ${noMinHold}`,
    ],
  ])('`checkLockKind` refuses the options %j', (options, type, message) => {
    let thrown: unknown;
    try {
      checkLockKind(options);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(type);
    expect((thrown as Error).message).toContain(message);
  });

  test("the mode 'shared' is refused when the module has a `minHold`, unless the call sets `minHold` to 0", () => {
    expect(() => resolveLockOptions({ mode: 'shared' }, { minHold: 50 })).toThrow(
      new TypeError(
        "Expected no `minHold` with `mode: 'shared'`, got 50 from the `defaults` of the module, so give `minHold: 0`. " +
          noMinHold,
      ),
    );
    expect(resolveLockOptions({ mode: 'shared', minHold: 0 }, { minHold: 50 }).minHold).toBe(0);
    expect(resolveLockOptions({ permits: 2 }, { minHold: 50 }).minHold).toBe(50);
  });
});

describe('checkLockOptions', () => {
  test.each<[object, ErrorConstructor, string]>([
    [{ ttl: -5 }, RangeError, 'Expected `ttl` to be a whole number of milliseconds, at least 10, got -5'],
    [{ ttl: 9 }, RangeError, 'Expected `ttl` to be a whole number of milliseconds, at least 10, got 9'],
    [{ ttl: 10.5 }, RangeError, 'Expected `ttl` to be a whole number of milliseconds, at least 10, got 10.5'],
    [
      { ttl: '5s' },
      TypeError,
      "Expected `ttl` to be a whole number of milliseconds, at least 10, got '5s'; write 5000 for 5 s",
    ],
    [{ ttl: '250ms' }, TypeError, "got '250ms'; write 250 for 250 ms"],
    [{ ttl: ' 1.5 m ' }, TypeError, "got ' 1.5 m '; write 90000 for 1.5 m"],
    [{ ttl: '2min' }, TypeError, "got '2min'; write 120000 for 2 min"],
    [{ ttl: '1H' }, TypeError, "got '1H'; write 3600000 for 1 h"],
    [{ ttl: '5000' }, TypeError, "got '5000'; give a number, not text"],
    [{ ttl: 'soon' }, TypeError, "got 'soon'; give a number, not text"],
    [{ retry: { timeout: '3s' } }, TypeError, "got '3s'; write 3000 for 3 s"],
    [{ ttl: 2 ** 31 }, RangeError, 'at least 10, at most 2147483647, got 2147483648'],
    [{ ttl: null }, TypeError, 'Expected `ttl` to be a whole number of milliseconds, at least 10, got null'],
    [{ renew: 'yes' }, TypeError, "Expected `renew` to be `true`, `false` or 'thread', got 'yes'"],
    [
      { renew: 'thread', maxBlocked: 999 },
      RangeError,
      'Expected `maxBlocked` to be a whole number of milliseconds, at least 1000, got 999',
    ],
    [
      { renew: true, maxBlocked: 2_000 },
      TypeError,
      "Expected `maxBlocked` with `renew: 'thread'`, got `renew: true`. Leave out `maxBlocked`, or let a thread renew",
    ],
    [
      { minHold: -1 },
      RangeError,
      'Expected `minHold` to be a whole number of milliseconds, at least 0, got -1',
    ],
    [
      { minHold: '8s' },
      TypeError,
      "Expected `minHold` to be a whole number of milliseconds, at least 0, got '8s'",
    ],
    [
      { maxHold: 0 },
      RangeError,
      'Expected `maxHold` to be a whole number of milliseconds, at least 1, got 0',
    ],
    [
      { maxHold: '1m' },
      TypeError,
      "Expected `maxHold` to be a whole number of milliseconds, at least 1, got '1m'",
    ],
    [{ reentrant: 1 }, TypeError, 'Expected `reentrant` to be `true` or `false`, got 1'],
    [{ onLost: 'log' }, TypeError, "Expected `onLost` to be 'throw' or 'ignore', got 'log'"],
    [
      { release: 'commit' },
      TypeError,
      "Expected `release` to be 'afterMethod' or 'afterCommit', got 'commit'",
    ],
    [
      { retry: true },
      TypeError,
      'Expected `retry` to be `false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`, got true',
    ],
    [
      { retry: 3 },
      TypeError,
      '`retry` to be `false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`, got 3',
    ],
    [
      { retry: { timeout: 0 } },
      RangeError,
      '`retry.timeout` to be a whole number of milliseconds, at least 1, got 0',
    ],
    [
      { retry: { delay: 0 } },
      RangeError,
      '`retry.delay` to be a whole number of milliseconds, at least 1, got 0',
    ],
    [
      { retry: { jitter: -1 } },
      RangeError,
      '`retry.jitter` to be a whole number of milliseconds, at least 0, got -1',
    ],
    [{ retry: { attempts: 0 } }, RangeError, '`retry.attempts` to be a whole number, at least 1, got 0'],
    [{ retry: { attempts: 1.5 } }, RangeError, '`retry.attempts` to be a whole number, at least 1, got 1.5'],
    [{ retry: { timeot: 3 } }, TypeError, 'Unknown option `timeot` in `retry`. Did you mean `timeout`?'],
    [
      { retry: { retries: 3 } },
      TypeError,
      'Unknown option `retries` in `retry`. The options are `timeout`, ',
    ],
  ])('`checkLockOptions` refuses the options %p', (options, type, message) => {
    expect(() => checkLockOptions(options)).toThrow(type as never);
    expect(() => checkLockOptions(options)).toThrow(message);
  });

  test.each([
    [{}],
    [{ ttl: 10, renew: false, onLost: 'ignore', retry: false }],
    [{ renew: 'thread', maxBlocked: 1_000 }],
    // The `defaults` of the module may have it for the locks that ask for the thread.
    [{ maxBlocked: 1_000 }],
    [{ retry: { timeout: 1, attempts: 1, delay: 1, jitter: 0 } }],
  ] as const)('`checkLockOptions` accepts the options %p', (options) => {
    expect(() => checkLockOptions(options)).not.toThrow();
  });
});
