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
    const holder = await busy.acquire(['key'], once);
    const served: number[] = [];
    const calls: Promise<void>[] = [];
    for (let call = 0; call < 10; call++) {
      // One application learns of revisions that the other does not know of.
      const other = await busy.acquire([`other:${call}`], once);
      await other.release();
      const redlock = call % 2 === 0 ? busy : quiet;
      calls.push(
        redlock.acquire(['key'], waiting).then(async (lock) => {
          served.push(call);
          await lock.release();
        }),
      );
      await delay(15);
    }
    // The queue has one entry for each application.
    await until(async () => (await server.keys()).filter(({ key }) => key.includes('key\0q\0')).length === 2);
    await holder.release();
    await Promise.all(calls);
    expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await Promise.all(applications.map((redlock) => redlock.close()));
    await server.stop();
  });
});
