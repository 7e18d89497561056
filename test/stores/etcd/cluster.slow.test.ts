import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { contend } from '../../faults/contend.js';
import { redlockOver } from '../../support/core.js';
import {
  type EtcdServer,
  hasEtcd,
  oldLeadersRevoke,
  startEtcd,
  startEtcdCluster,
} from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { renewed } from '../lock-lifetime.js';
import { contentionFor } from '../contention-contract.js';

// A cluster of three members, one of which is killed, paused or cannot be reached. `npm run test:faults` runs longer.

const LONG = process.env['FAULTS'] === 'long';

const once: AcquireTerms = { ttl: 2_000, renew: true, signals: [], retry: NO_RETRY };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

(hasEtcd() ? describe : describe.skip)('an etcd cluster of three members', () => {
  let servers: EtcdServer[];
  let nextKey = 0;

  beforeAll(async () => {
    servers = await startEtcdCluster(3);
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });

  const freshKey = (): string => `key:${nextKey++}`;

  /** @param to - the members, in the order in which the process asks them */
  async function newProcess(
    to: readonly { readonly host: string; readonly port: number }[],
  ): Promise<Redlock> {
    const endpoints = to.map(({ host, port }) => `http://${host}:${port}`);
    const store = new EtcdStore({ endpoints }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return redlockOver([store], PATIENT);
  }

  async function leader(): Promise<EtcdServer> {
    let found: EtcdServer | undefined;
    await until(async () => {
      const all = await Promise.all(servers.map((server) => server.isLeader().catch(() => false)));
      found = servers[all.indexOf(true)];
      return found !== undefined;
    });
    return found!;
  }

  /** All members, with `first` in front. */
  const from = (first: EtcdServer): EtcdServer[] => [first, ...servers.filter((server) => server !== first)];

  /** Starts all members, and waits until they agree on a leader. */
  async function whole(): Promise<void> {
    for (const server of servers) await server.start();
    await until(async () => {
      const all = await Promise.all(servers.map((server) => server.isLeader().catch(() => undefined)));
      return all.filter((each) => each === true).length === 1 && !all.includes(undefined);
    });
  }

  test('an etcd cluster keeps a lock when the leader that granted it is killed, and continues with larger tokens', async () => {
    const first = await leader();
    const redlock = await newProcess(from(first));
    const [kept, freed] = [freshKey(), freshKey()];
    const lock = await redlock.acquire([kept], { ...waiting, ttl: 12_000 });
    const before = await redlock.acquire([freed], waiting);
    await before.release();
    await first.kill();
    const after = await redlock.acquire([freed], waiting);
    expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
    await renewed([lock]);
    expect(lock.isHeld()).toBe(true);
    await Promise.all([lock.release(), after.release()]);
    await redlock.close();
    await whole();
  });

  test("an etcd cluster grants a lock to the next caller only after the holder's validity has passed, even if the leader is paused", async () => {
    const first = await leader();
    const [holder, other] = [await newProcess([first]), await newProcess(from(first).slice(1))];
    const key = freshKey();
    const lock = await holder.acquire([key], waiting);
    const { signal } = lock;
    await first.pause();
    const next = await other.acquire([key], waiting);
    expect(lock.isHeld()).toBe(false);
    await until(() => signal.aborted);
    first.resume();
    await delay(300);
    // The old leader answers a pending renewal too late. The answer must not count.
    expect(lock.isHeld()).toBe(false);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await Promise.all([lock.release(), next.release()]);
    await Promise.all([holder.close(), other.close()]);
    await whole();
  });

  test('an etcd store renews a lock through another member when the member in use cannot be reached', async () => {
    const proxy = await startTcpProxy(servers[0]!);
    const redlock = await newProcess([proxy, ...servers.slice(1)]);
    const lock = await redlock.acquire([freshKey()], { ...waiting, ttl: 12_000 });
    proxy.blackHole();
    await renewed([lock]);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await redlock.close();
    await proxy.close();
  });

  test('an etcd member without a majority grants and renews no lock, and callers get LOCK_UNAVAILABLE', async () => {
    const [alone, ...others] = servers as [EtcdServer, ...EtcdServer[]];
    const redlock = await newProcess([alone]);
    const lock = await redlock.acquire([freshKey()], waiting);
    await Promise.all(others.map((server) => server.pause()));
    const refused = redlock.acquire([freshKey()], { ...once, retry: { ...waiting.retry, timeout: 1_000 } });
    await expect(refused).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await until(() => !lock.isHeld());
    for (const server of others) server.resume();
    await whole();
    await lock.release();
    const after = await redlock.acquire([freshKey()], waiting);
    await after.release();
    await redlock.close();
  });

  test('an etcd store whose endpoints belong to two clusters is refused at start-up', async () => {
    const another = await startEtcd();
    const store = new EtcdStore({ endpoints: [servers[0]!.url, another.url] }, newTerms());
    await expect(store.connect()).rejects.toThrow('its endpoints belong to different clusters');
    await store.close();
    await another.stop();
  });

  describe('many contenders', () => {
    const DURATION = LONG ? 30_000 : 6_500;

    const faults: readonly (readonly [string, (ways: readonly TcpProxy[]) => Promise<unknown>])[] = [
      [
        'the leader is killed and restarted',
        async () => {
          const first = await leader();
          await first.kill();
          await delay(1_500);
          await first.start();
        },
      ],
      [
        'the leader stands still for longer than a ttl',
        async () => {
          const first = await leader();
          await first.pause();
          await delay(3_000);
          first.resume();
        },
      ],
      [
        'a random member cannot be reached for a while',
        async (ways) => {
          const way = ways[Math.floor(Math.random() * ways.length)];
          way?.blackHole();
          await delay(2_000);
          await way?.heal();
        },
      ],
    ];

    test.each(LONG ? faults : faults.slice(0, 1))(
      'no two contenders hold a lock together, and tokens grow, when %s',
      async (name, fault) => {
        const ways = await Promise.all(servers.map((server) => startTcpProxy(server)));
        const processes = await Promise.all(
          ways.map((_way, index) => newProcess([...ways.slice(index), ...ways.slice(0, index)])),
        );
        const { overlaps, tokenFaults, late, acquisitions } = await contend(
          processes,
          contentionFor(DURATION),
          async () => {
            for (const end = performance.now() + DURATION - 5_000; performance.now() < end;) {
              await delay(1_000);
              await fault(ways);
            }
          },
        );
        expect({ tokenFaults, late }).toEqual({ tokenFaults: [], late: [] });
        const isSpoilt = name.includes('stands still') && oldLeadersRevoke();
        if (isSpoilt) process.stderr.write('Not judged: overlaps, which this etcd causes by issue 15247.\n');
        expect(isSpoilt ? [] : overlaps).toEqual([]);
        // Low: holds may be long, and a member is away for half of the time.
        expect(acquisitions).toBeGreaterThan(2);
        await whole();
        await until(async () => (await servers[0]!.holders()).length === 0);
        await Promise.all(processes.map((redlock) => redlock.close()));
        await Promise.all(ways.map((way) => way.close()));
      },
    );
  });
});
