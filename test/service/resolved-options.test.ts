import { expect, test } from '@jest/globals';
import {
  type LockKindOptions,
  type LockOptions,
  NO_RETRY,
  resolveLockOptions,
} from '../../lib/core/lock-options.js';
import { ResolvedOptions } from '../../lib/service/resolved-options.js';

const defaults: LockOptions = { ttl: 7_000, retry: { timeout: 300 } };

test('ResolvedOptions resolves equal options only once', () => {
  const options = new ResolvedOptions(defaults);

  expect(options.of({ ttl: 5_000, retry: { attempts: 3 } })).toBe(
    options.of({ ttl: 5_000, retry: { attempts: 3 } }),
  );
});

test('ResolvedOptions resolves an options object again when it has changed', () => {
  const options = new ResolvedOptions(defaults);
  const retry = { timeout: 100 };
  const given = { ttl: 5_000, retry };
  options.of(given);
  given.ttl = 6_000;
  expect(options.of(given).ttl).toBe(6_000);
  retry.timeout = 200;
  expect(options.of(given).retry.timeout).toBe(200);
});

const others: readonly (LockOptions & LockKindOptions)[] = [
  { mode: 'shared' },
  { mode: 'exclusive' },
  { permits: 2 },
  { permits: 3 },
  { ttl: 5_000 },
  { renew: false },
  { minHold: 10 },
  { maxHold: 10 },
  { reentrant: true },
  { onLost: 'ignore' },
  { release: 'afterCommit' },
  { retry: false },
  { retry: {} },
  { retry: { timeout: 10 } },
  { retry: { attempts: 2 } },
  { retry: { delay: 10 } },
  { retry: { jitter: 10 } },
];

test.each(others)('ResolvedOptions distinguishes %j from earlier options', (given) => {
  for (const before of others) {
    const options = new ResolvedOptions(defaults);
    options.of(before);
    expect(options.of(given)).toEqual(resolveLockOptions(given, defaults));
  }
});

test('ResolvedOptions refuses options that conflict with the defaults, also the second time', () => {
  const options = new ResolvedOptions({ minHold: 50 });
  options.of({});
  for (let call = 0; call < 2; call++) expect(() => options.of({ mode: 'shared' })).toThrow('`minHold: 0`');
  expect(options.of({}).kind.mode).toBe('exclusive');
});

test('ResolvedOptions prefers a `retry` of the call to `retry: false` of the defaults', () => {
  const options = new ResolvedOptions({ retry: false });

  expect(options.of({}).retry).toBe(NO_RETRY);
  expect(options.of({ retry: { delay: 1 } }).retry).toMatchObject({ timeout: 5_000, delay: 1 });
});
