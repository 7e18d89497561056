import { describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { ZooKeeperStore } from '../../../lib/stores/zookeeper/zookeeper-store.js';
import { buildClockShim } from '../../faults/clock-shim.js';
import { contend } from '../../faults/contend.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, startZooKeeper } from '../../support/zookeeper-server.js';
import { contentionFor } from '../contention-contract.js';
import { holdersIn } from './holders-in.js';

const TTL = 60_000;

const waiting: AcquireTerms = {
  ...{ ttl: TTL, renew: true, signals: [] },
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

async function openStore(connectionString: string): Promise<ZooKeeperStore> {
  const store = new ZooKeeperStore({ connectionString }, newTerms());
  cleanUpAfterTests(() => store.close());
  await store.connect();
  return store;
}

(hasZooKeeper() ? describe : describe.skip)('one ZooKeeper with faults', () => {
  test('when the session expires, no lock is lost, and a waiter gets the lock in a new session', async () => {
    const server = await startZooKeeper();
    const proxy = await startTcpProxy(server);
    const witness = await openStore(server.address);
    const store = await openStore(`${proxy.host}:${proxy.port}`);
    const kept = new Lease(['kept'], 'me', TTL);
    await acquireOn(store, kept);
    const held = new Lease(['wanted'], 'witness', TTL);
    await acquireOn(witness, held);
    const next = redlockOver([store], PATIENT).acquire(['wanted'], waiting);
    const queueLength = async (): Promise<number> => (await witness.waiting(['wanted']))[0]!.length;
    await until(async () => (await queueLength()) === 1);
    proxy.refuse();
    proxy.cut();
    await until(async () => (await queueLength()) === 0);
    await proxy.accept();
    await until(async () => (await queueLength()) === 1);
    expect(await extendOn(store, kept, TTL)).toBe(true);
    await releaseOn(witness, held);
    await (await next).release();
    await server.stop();
  });

  test('after a restore of an older copy, running processes grant nothing, and new ones see the locks of the copy', async () => {
    const server = await startZooKeeper();
    const running = await openStore(server.address);
    const copied = new Lease(['copied'], 'me', TTL);
    await acquireOn(running, copied);
    await server.backUp();
    await until(() => running.available);
    const forgotten = new Lease(['forgotten'], 'me', TTL);
    await acquireOn(running, forgotten);
    for (let count = 0; count < 100; count++) expect(await extendOn(running, forgotten, TTL)).toBe(true);
    await server.restore();
    const started = await openStore(server.address);
    expect(await started.read(['copied', 'forgotten'])).toMatchObject([
      { holders: [{ id: copied.id }] },
      undefined,
    ]);
    // The server refuses a client that has seen a newer transaction than it has itself.
    await delay(2_000);
    expect(running.available).toBe(false);
    await expect(acquireOn(running, new Lease(['other'], 'me', TTL))).rejects.toThrow(
      'no server is connected',
    );
    // When it has as many transactions, the process goes on, and knows that it has lost the lock.
    await until(async () => {
      await acquireOn(started, new Lease([`more:${Math.random()}`], 'me', TTL));
      return running.available;
    });
    expect(await extendOn(running, forgotten, TTL)).toBe(false);
    expect(await extendOn(running, copied, TTL)).toBe(true);
    await server.stop();
  });

  test('lists 10,000 held keys, and deletes their nodes afterwards', async () => {
    const server = await startZooKeeper();
    const store = await openStore(server.address);
    const keys = Array.from({ length: 10_000 }, (_, index) => `key:${index}`);
    const leases = keys.map((key) => new Lease([key], 'me', 60 * TTL));
    for (let start = 0; start < leases.length; start += 500)
      await Promise.all(leases.slice(start, start + 500).map((lease) => acquireOn(store, lease)));
    const begun = performance.now();
    const found = await holdersIn(await openStore(server.address));
    process.stderr.write(`10,000 held keys listed in ${Math.round(performance.now() - begun)} ms\n`);
    expect(new Set(found.keys())).toEqual(new Set(keys));
    for (let start = 0; start < leases.length; start += 500)
      await Promise.all(leases.slice(start, start + 500).map((lease) => releaseOn(store, lease)));
    expect(await store.sweep(-60 * TTL)).toBe(10_000);
    await server.stop();
  });

  const shim = buildClockShim();
  if (typeof shim === 'string') {
    test(`jumps of the leader's clock are not tested: ${shim}`, () => expect(shim).toContain(' '));
    return;
  }

  /** Milliseconds by which the leader's clock is ahead: more than a ttl, near a ttl, and behind. */
  const STEPS = [0, 60_000, 0, -60_000, 0, 4_000, 0, -4_000, 3_600_000];

  test("no two contenders hold a lock together, and tokens grow, while the leader's clock jumps", async () => {
    const server = await startZooKeeper({ env: shim.env });
    cleanUpAfterTests(() => server.stop());
    const processes = await Promise.all(
      ['one', 'two', 'three'].map(async (): Promise<Redlock> =>
        redlockOver([await openStore(server.address)], PATIENT),
      ),
    );
    const verdict = await contend(processes, contentionFor(20_000), async () => {
      for (let turn = 0; turn < 40; turn++) {
        shim.shift(STEPS[turn % STEPS.length]!);
        await delay(400);
      }
      shim.shift(0);
    });
    const { overlaps, tokenFaults, late, acquisitions } = verdict;
    expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
    expect(acquisitions).toBeGreaterThan(20);
    await Promise.all(processes.map((redlock) => redlock.close()));
  });

  test("a lock that was stored before a jump of the leader's clock is granted to no new process", async () => {
    const server = await startZooKeeper({ env: shim.env });
    shim.shift(0);
    const store = await openStore(server.address);
    const lease = new Lease(['held'], 'me', TTL);
    await acquireOn(store, lease);
    for (const step of STEPS.filter((each) => each > 0)) {
      shim.shift(step + TTL + 2_000);
      const once = await openStore(server.address);
      expect(await acquireOn(once, new Lease(['held'], 'other', TTL))).toMatchObject({ granted: false });
      await once.sweep(0);
    }
    shim.shift(0);
    expect(await extendOn(store, lease, TTL)).toBe(true);
    await server.stop();
  });
});
