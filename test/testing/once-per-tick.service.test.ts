import { afterEach, expect, jest, test } from '@jest/globals';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockService } from '../../lib/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';

const NIGHTLY = '0 3 * * *';
const UTC = { timeZone: 'UTC' };

let module: TestingModule;
afterEach(async () => {
  jest.useRealTimers();
  await module.close();
});

test('`LockService.oncePerTick` runs a tick once until `reset()` or the next tick, unless its key is held', async () => {
  jest.useFakeTimers({
    now: Date.UTC(2026, 1, 3, 12),
    doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate'],
  });
  const locks = new TestLocks({ wait: false });
  module = await Test.createTestingModule({ imports: [RedlockTestingModule.forRoot({ locks })] }).compile();
  const fire = (): Promise<string | undefined> =>
    module.get(LockService).oncePerTick('report', NIGHTLY, UTC, () => 'sent');
  expect([await fire(), await fire()]).toEqual(['sent', undefined]);
  locks.reset();
  expect(await fire()).toBe('sent');
  expect(locks.history).toMatchObject([{ keys: ['report'], method: undefined, label: 'other' }]);
  await jest.advanceTimersByTimeAsync(15 * 3_600_000 + 1_000);
  expect(await fire()).toBe('sent');
  locks.reset();
  const other = await locks.hold('report');
  expect(await fire()).toBeUndefined();
  await other.release();
  expect(await fire()).toBe('sent');
});
