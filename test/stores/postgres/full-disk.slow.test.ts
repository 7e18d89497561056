import { execFileSync } from 'node:child_process';
import { describe, expect, test } from '@jest/globals';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

const waiting: AcquireTerms = {
  ttl: 60_000,
  renew: true,
  signals: [],
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};
const once: AcquireTerms = { ...waiting, retry: NO_RETRY };

/** Name of the test that runs in place of the skipped test. */
const NO_VOLUME = 'a full disk is not tested: only root can make a small volume';

describe('a full disk', () => {
  if (!canMount()) {
    test(`${NO_VOLUME}`, () => expect(canMount()).toBe(false));
    return;
  }

  test('a full disk makes acquires fail with LOCK_UNAVAILABLE until there is room again', async () => {
    const full = await startPostgresServer({
      volume: 130,
      settings: ['min_wal_size=32MB', 'max_wal_size=32MB'],
    });
    const store = new PostgresStore({ connectionString: full.url }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    const redlock = redlockOver([store], { nodeTimeout: 2_000 });
    const key = 'kept';
    const before = await redlock.acquire([key], { ...waiting, ttl: 10_000, renew: false });
    execFileSync('sh', ['-c', 'cat /dev/zero > "$1" 2>/dev/null || true', 'fill', `${full.data}/filler`]);
    // The tables and the log still have some free space, which these acquisitions use up.
    const refusals: unknown[] = [];
    let nextKey = 0;
    await until(async () => {
      const asked = Array.from({ length: 500 }, () =>
        redlock.acquire([`${nextKey++}${'x'.repeat(500)}`], once),
      );
      const outcomes = await Promise.allSettled(asked);
      refusals.push(
        ...outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : [])),
      );
      return refusals.length > 0;
    }, 120_000);
    expect(refusals[0]).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    execFileSync('rm', [`${full.data}/filler`]);
    await full.restart();
    await until(() => store.available);
    const next = await redlock.acquire([key], waiting);
    expect(before.isHeld()).toBe(false);
    expect(next.fencingToken).toBeGreaterThan(before.fencingToken);
    await next.release();
    await redlock.close();
    await full.stop();
  });
});

function canMount(): boolean {
  try {
    execFileSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
