import { describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { redlockOver } from '../../support/core.js';
import { hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

const once: AcquireTerms = { ttl: 60_000, renew: true, signals: [], retry: NO_RETRY };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

/** Milliseconds, less than a turn of a waiter. A scenario with a slower step is no proof: a turn may have passed. */
const SLOW = 100;

function isInOrder({ served }: { readonly served: readonly number[] }): boolean {
  return served.every((call, index) => call === index);
}

(hasEtcd() ? describe : describe.skip)('the queue of etcd', () => {
  test('waiters of two applications get the lock in the order in which they came, whatever else the applications do', async () => {
    const server = await startEtcd();
    const applications: Redlock[] = [];
    for (let count = 0; count < 2; count++) {
      const store = new EtcdStore({ endpoints: server.url }, newTerms());
      cleanUpAfterTests(() => store.close());
      await store.connect();
      applications.push(redlockOver([store], PATIENT));
    }
    const [busy, quiet] = applications as [Redlock, Redlock];

    /** The order in which ten waiters got the lock, and the milliseconds of the slowest step. */
    async function scenario(): Promise<{ served: readonly number[]; slowest: number }> {
      let slowest = 0;
      let last = performance.now();
      const step = (): void => {
        slowest = Math.max(slowest, performance.now() - last);
        last = performance.now();
      };
      const holder = await busy.acquire(['key'], once);
      const served: number[] = [];
      const calls: Promise<void>[] = [];
      last = performance.now();
      for (let call = 0; call < 10; call++) {
        // One application learns of revisions that the other does not know of.
        const other = await busy.acquire([`other:${call}`], once);
        await other.release();
        const redlock = call % 2 === 0 ? busy : quiet;
        calls.push(
          redlock.acquire(['key'], waiting).then(async (lock) => {
            step();
            served.push(call);
            await lock.release();
          }),
        );
        await delay(15);
        step();
      }
      // The queue has one entry for each application.
      await until(
        async () => (await server.keys()).filter(({ key }) => key.includes('key\0q\0')).length === 2,
      );
      last = performance.now();
      await holder.release();
      await Promise.all(calls);
      return { served, slowest };
    }

    let outcome = await scenario();
    for (let tries = 1; tries < 20 && !isInOrder(outcome) && outcome.slowest >= SLOW; tries++) {
      outcome = await scenario();
    }
    expect(outcome.served).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await Promise.all(applications.map((redlock) => redlock.close()));
    await server.stop();
  });
});
