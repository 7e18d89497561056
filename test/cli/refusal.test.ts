import { expect, test } from '@jest/globals';
import { GuardedNodeError, LockHeldError, LockUnavailableError } from '../../lib/core/errors.js';
import type { LockHolder } from '../../lib/core/lock-info.js';
import { whyHeld, whyUnavailable } from '../../lib/cli/refusal.js';

const holder: LockHolder = {
  id: '0'.repeat(32),
  owner: 'api:1',
  mode: 'shared',
  since: new Date(0),
  remaining: 2_500,
  fencingToken: undefined,
};

test.each([
  ['held by api:1 (2.5 s left unless renewed)', 2_500, [holder]],
  ['held by api:1 and 1 more (2.5 s left unless renewed)', 2_500, [holder, holder]],
  ['held by api:1, without an expiry; nestjs-redlock release ends it', Infinity, [holder]],
  ['reserved for api:1, who came earlier and waits', 2_500, []],
])('the command line says that the lock is %s', (text, retryAfter, holders) => {
  expect(whyHeld(new LockHeldError(['k'], 'api:1', retryAfter, { holders }))).toBe(`"k" is ${text}`);
});

test('the command line names its own options when nodes do not vote yet', () => {
  const votes = [{ node: 'a:1', vote: 'error' as const, error: new GuardedNodeError(8_000) }];
  const error = new LockUnavailableError(['k'], 'no quorum', votes).afterTrying({ timeout: 5_000 });
  const text = whyUnavailable(error);
  expect(text).toMatch(
    /it votes again in 8000 ms \(restartGuard\)\. Gave up after 5000 ms\. A longer --wait/,
  );
  expect(text).not.toMatch(/waitForQuorum|retry/);
});
