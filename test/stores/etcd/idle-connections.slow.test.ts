import { beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { redlockOver } from '../../support/core.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { startForgetfulNetwork } from './forgetful-network.js';

// A process with long pauses between its requests, in a network that forgets idle connections.

/** Milliseconds after which the network forgets a connection; long enough for a busy machine between two requests. */
const FORGETS_AFTER = 2_500;

const once: AcquireTerms = { ttl: 20_000, renew: true, signals: [], retry: NO_RETRY };

(hasEtcd() ? describe : describe.skip)('an idle connection to etcd', () => {
  let server: EtcdServer;
  let nextKey = 0;

  beforeAll(async () => {
    server = await startEtcd();
  });

  const freshKey = (): string => `key:${nextKey++}`;

  async function openStore(address: { readonly host: string; readonly port: number }) {
    const terms = newTerms();
    const store = new EtcdStore({ endpoints: `http://${address.host}:${address.port}` }, terms);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return { store, terms };
  }

  test.each(['a reset', 'nothing'] as const)(
    'every job with a single attempt gets its lock after a pause, when a forgotten connection is answered with %s',
    async (answer) => {
      const network = await startForgetfulNetwork(server, FORGETS_AFTER, answer);
      const { store, terms } = await openStore(network);
      // A request on a forgotten connection gets no answer within this limit, either.
      const redlock = redlockOver([store], PATIENT);
      // Several connections are idle, and all are forgotten.
      const locks = await Promise.all(Array.from({ length: 5 }, () => redlock.acquire([freshKey()], once)));
      await Promise.all(locks.map((lock) => lock.release()));
      network.forgets = true;
      const outcomes: string[] = [];
      for (let job = 0; job < 3; job++) {
        await delay(FORGETS_AFTER + 500);
        const renew = job !== 1;
        const lock = await redlock.acquire([freshKey()], { ...once, renew }).catch((error: Error) => error);
        outcomes.push(lock instanceof Error ? lock.message : 'locked');
        if (!(lock instanceof Error)) await lock.release();
      }
      expect(outcomes).toEqual(['locked', 'locked', 'locked']);
      expect(terms.events).toEqual(['ready']);
      expect(await server.holders()).toEqual([]);
      await redlock.close();
    },
  );

  test.each(['a reset', 'nothing'] as const)(
    'a renewal and a release over a forgotten connection succeed, when it is answered with %s',
    async (answer) => {
      const network = await startForgetfulNetwork(server, FORGETS_AFTER, answer);
      const { store, terms } = await openStore(network);
      // A request on a forgotten connection gets no answer within this limit, either.
      const redlock = redlockOver([store], PATIENT);
      const key = freshKey();
      // The renewals, after a third of the ttl each, are the only requests.
      const lock = await redlock.acquire([key], once);
      network.forgets = true;
      await until(() => network.used > 0);
      await lock.extend(20_000);
      await delay(FORGETS_AFTER + 500);
      const used = network.used;
      await lock.release();
      expect(network.used).toBeGreaterThan(used);
      expect(await server.holders()).toEqual([]);
      expect(terms.events).toEqual(['ready']);
      await redlock.close();
    },
  );

  test('a process notices the end of etcd without a request of its own, and that etcd is back', async () => {
    const mine = await startEtcd();
    const { store, terms } = await openStore(mine);
    await mine.kill();
    await until(() => terms.events.includes('lost'));
    await mine.start();
    await until(() => store.available);
    expect(terms.events).toEqual(['ready', 'lost', 'ready']);
    await store.close();
    await mine.stop();
  });

  test('a single connection that ends during a request is not reported as a lost etcd', async () => {
    const proxy = await startTcpProxy(server);
    const { store, terms } = await openStore(proxy);
    const redlock = redlockOver([store], PATIENT);
    proxy.holdRequests();
    const failing = redlock.acquire([freshKey()], once);
    failing.catch(() => undefined);
    await until(() => proxy.connectionCount > 0);
    proxy.cut();
    await proxy.heal();
    await failing.catch(() => undefined);
    const lock = await redlock.acquire([freshKey()], once);
    await lock.release();
    expect(terms.events).toEqual(['ready']);
    await redlock.close();
    await proxy.close();
  });
});
