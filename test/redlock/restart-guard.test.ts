import { expect, test } from '@jest/globals';
import { RestartGuard } from '../../lib/redlock/restart-guard.js';

test('the restart guard is as long as the largest ttl in use, including the default ttl (S12)', () => {
  const guard = new RestartGuard(undefined);
  expect(guard.duration).toBe(10_000);
  guard.note(500);
  guard.note(60_000);
  guard.note(20_000);
  expect(guard.duration).toBe(60_000);
});

test('a restart guard with a configured duration refuses a longer ttl', () => {
  const guard = new RestartGuard(3_000);
  guard.note(3_000);
  expect(() => guard.note(3_001)).toThrow(
    new RangeError(
      'Expected `ttl` to be at most the `restartGuard` of 3000 ms (set `restartGuard` to the largest ttl of all processes), got 3001',
    ),
  );
  expect(guard.duration).toBe(3_000);
});

test('the restart guard refuses an extension with a ttl that is longer than the guard', () => {
  const guard = new RestartGuard(undefined);
  guard.checkCovers(10_000);
  expect(() => guard.checkCovers(60_000)).toThrow('at most the `restartGuard` of 10000 ms');
  guard.note(60_000);
  guard.checkCovers(60_000);
});

test('a restart guard of 0 ms allows every ttl', () => {
  const guard = new RestartGuard(0);
  guard.note(60_000);
  guard.checkCovers(90_000);
  expect(guard.duration).toBe(0);
});
