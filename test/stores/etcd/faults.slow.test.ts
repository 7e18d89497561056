import { describe, expect, test } from '@jest/globals';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { isDeepStrictEqual } from 'node:util';
import { setTimeout as delay } from 'node:timers/promises';
import { LockLostError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import type { StoreTerms } from '../../../lib/core/store-factory.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { FRESH_MS } from '../../../lib/stores/etcd/bases.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { startFakeGateway } from '../../support/etcd-gateway.js';
import { type EtcdServer, hasEtcd, hasEtcdctl, startEtcd } from '../../support/etcd-server.js';
import { freePort, LOOPBACK } from '../../support/free-port.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';
import {
  type Address,
  FaultContract,
  freshKey,
  once,
  RELEASED_WITHIN,
  TTL,
  waiting,
} from '../faults-contract.js';
import { extendUntilConfirmed } from '../lock-lifetime.js';

// Locks while connections to one etcd are cut, while it dies, and while etcd leases are taken away. The tests of a cluster of
// three are in cluster.slow.test.ts.

/**
 * A gateway to etcd that can hold transactions back, close their connections, and deliver the transactions after the
 * client has given up.
 */
async function startLateGateway(server: EtcdServer) {
  const kept: string[] = [];
  let isKeeping = false;
  const gateway = createServer(async (request, response) => {
    const body = await text(request);
    if (isKeeping && request.url === '/v3/kv/txn') {
      kept.push(body);
      return void request.socket.destroy();
    }
    const answer = await fetch(`${server.url}${request.url}`, { method: 'POST', body });
    response.writeHead(answer.status).end(await answer.text());
  });
  const port = await freePort();
  await new Promise<void>((listening) => gateway.listen(port, LOOPBACK, listening));
  const close = async (): Promise<void> => {
    gateway.closeAllConnections();
    gateway.close();
  };
  cleanUpAfterTests(close);
  return {
    address: { host: LOOPBACK, port },
    kept,
    close,
    keepTransactions: () => void (isKeeping = true),
    async deliver(): Promise<string> {
      const answer = await fetch(`${server.url}/v3/kv/txn`, { method: 'POST', body: kept[0] ?? '' });
      return answer.text();
    },
  };
}

(hasEtcd() ? describe : describe.skip)('etcd', () => {
  const faults = new FaultContract('etcd', {
    start: startEtcd,
    open: openStore,
    isHeld: async (key, on) =>
      (await on.holders()).some((name) => name.startsWith(`nestjs-redlock/lock/lock:${key}\0`)),
  });

  async function openStore(to: Address, terms: StoreTerms = newTerms()): Promise<EtcdStore> {
    return openOver([to], terms);
  }

  async function openOver(to: readonly Address[], terms: StoreTerms = newTerms()): Promise<EtcdStore> {
    const endpoints = to.map(({ host, port }) => `http://${host}:${port}`);
    const store = new EtcdStore({ endpoints }, terms);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return store;
  }

  describe('a store over a broken connection', () => {
    test.each([true, false])(
      'a store deletes the key of an acquire whose reply was lost, and keeps other keys (renew: %p)',
      async (renew) => {
        const redlock = await faults.newProcess();
        const [kept, key] = [freshKey(), freshKey()];
        const neighbour = await redlock.acquire([kept], once);
        // The refusal leaves an unused etcd lease. The next lock without renewal uses that lease, so its only request
        // stores the key.
        const refused = redlock.acquire([kept], { ...once, renew });
        await expect(refused).rejects.toMatchObject({ code: 'LOCK_HELD' });
        faults.proxy.dropReplies();
        const acquiring = redlock.acquire([key], { ...once, renew });
        acquiring.catch(() => undefined);
        await until(() => faults.isHeld(key));
        // The reply may still be on its way to the proxy: without the cut, the reply would arrive after all.
        faults.proxy.cut();
        await faults.proxy.heal();
        await expect(acquiring).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
        await until(async () => !(await faults.isHeld(key)), RELEASED_WITHIN);
        await extendUntilConfirmed(neighbour);
        await neighbour.release();
        await redlock.close();
      },
    );

    test.each([true, false])(
      'etcd stores nothing when an acquire arrives after its release (S16, renew: %p)',
      async (renew) => {
        const late = await startLateGateway(faults.server);
        const other = await startFakeGateway(faults.server);
        const redlock = redlockOver([await openOver([late.address, other])], PATIENT);
        const [kept, key] = [freshKey(), freshKey()];
        const neighbour = await redlock.acquire([kept], once);
        await redlock.acquire([freshKey()], { ...once, renew });
        let released = false;
        other.intercept = async ({ path, pass }) => {
          const answer = await pass();
          released ||= path === (renew ? 'kv/txn' : 'lease/revoke');
          return answer;
        };
        late.keepTransactions();
        await expect(redlock.acquire([key], { ...once, renew })).rejects.toMatchObject({
          code: 'LOCK_UNAVAILABLE',
        });
        expect(late.kept).toHaveLength(1);
        // The release goes to the other endpoint, and is answered before the transaction is delivered.
        await until(() => released);
        const answer = await late.deliver();
        expect(await faults.isHeld(key)).toBe(false);
        expect(answer).toMatch(renew ? /^(?!.*"succeeded":true)/ : /lease not found/);
        await extendUntilConfirmed(neighbour);
        await neighbour.release();
        await redlock.close();
        await late.close();
      },
    );

    faults.renewsAfterCut();

    test('a store lets a waiter acquire although etcd compacted revisions that its watch missed', async () => {
      const redlock = await faults.newProcess();
      const other = await faults.newProcess(faults.server);
      const key = freshKey();
      const held = await other.acquire([key], once);
      const next = redlock.acquire([key], waiting);
      await until(async () => (await faults.server.keys()).some((each) => each.key.includes(`${key}\0q\0`)));
      faults.proxy.refuse();
      faults.proxy.cut();
      for (let count = 0; count < 10; count++) {
        const { header } = await faults.server.call<{ header: { revision: string } }>('kv/put', {
          key: 'eA==',
        });
        await faults.server.call('kv/compaction', { revision: header.revision, physical: true });
      }
      await faults.proxy.heal();
      await held.release();
      const lock = await next;
      expect(lock.fencingToken).toBeGreaterThan(held.fencingToken);
      await lock.release();
      await Promise.all([redlock.close(), other.close()]);
    });
  });

  describe('an etcd lease', () => {
    test('an etcd lease that another client revokes ends its lock with LockLostError, and the next lock gets a new lease', async () => {
      const redlock = await faults.newProcess(faults.server);
      const key = freshKey();
      const options: AcquireTerms = { ...once, ttl: 6_000 };
      const leaseOf = async (): Promise<string> =>
        (await faults.server.keys()).find((each) =>
          each.key.startsWith(`nestjs-redlock/lock/lock:${key}\0h\0`),
        )!.lease;
      const lock = await redlock.acquire([key], options);
      const { signal } = lock;
      const revoked = await leaseOf();
      await faults.server.call('lease/revoke', { ID: revoked });
      await until(() => signal.aborted);
      expect(signal.reason).toBeInstanceOf(LockLostError);
      // There is only one attempt, so it must not fail because of the revoked lease.
      const next = await redlock.acquire([key], options);
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await leaseOf()).not.toBe(revoked);
      await next.release();
      await redlock.close();
    });

    test('an etcd lease is shared by renewed locks with the same ttl, and by no other lock', async () => {
      const redlock = await faults.newProcess(faults.server);
      const keys = Array.from({ length: 6 }, freshKey);
      const options: AcquireTerms[] = [
        ...[once, once, once],
        ...[
          { ...once, renew: false },
          { ...once, maxHold: TTL },
          { ...once, minHold: 1 },
        ],
      ];
      const locks = await Promise.all(keys.map((key, index) => redlock.acquire([key], options[index]!)));
      const all = await faults.server.keys();
      const leases = keys.map((key) => all.find((each) => each.key.includes(`${key}\0`))?.lease);
      expect(new Set(leases.slice(0, 3)).size).toBe(1);
      expect(new Set(leases).size).toBe(4);
      // A lock with an extended ttl moves to another etcd lease.
      await locks[0]!.extend(2 * TTL);
      const moved = (await faults.server.keys()).find((each) => each.key.includes(`${keys[0]}\0`));
      expect(leases).not.toContain(moved?.lease);
      await Promise.all(locks.map((lock) => lock.release()));
      await redlock.close();
    });

    test('an etcd lease limits the validity of a lock that begins to share the lease later', async () => {
      const redlock = await faults.newProcess(faults.server);
      const first = await redlock.acquire([freshKey()], { ...waiting, ttl: 20_000 });
      await delay(1_000);
      const second = await redlock.acquire([freshKey()], { ...waiting, ttl: 20_000 });
      // The remaining time of the first lock is read first: time that passes between the two calls then shortens the
      // remaining time of the second lock. A lease of its own would give the second lock a second more. A machine that
      // stands still between two clocks that it reads makes the first time a little shorter.
      const ofFirst = first.remaining();
      expect(second.remaining()).toBeLessThanOrEqual(ofFirst + 500);
      expect(second.isHeld()).toBe(true);
      await Promise.all([first.release(), second.release()]);
      await redlock.close();
    });

    test('an unrenewed lock expires after its ttl, even if another lock renews the etcd lease that they share', async () => {
      const store = await openStore(faults.server);
      const ttl = 4_000;
      const [left, kept] = [freshKey(), freshKey()];
      const leases = [left, kept].map((key) => new Lease([key], 'me', ttl));
      const began = performance.now();
      for (const lease of leases) await acquireOn(store, lease, { renewed: true });
      await until(async () => {
        // If the answer to an extension is late, the next try still comes in time.
        expect(await extendOn(store, leases[1]!, ttl).catch(() => 'no answer')).not.toBe(false);
        await delay(200);
        return !(await faults.isHeld(left));
      });
      expect(performance.now() - began).toBeGreaterThanOrEqual(ttl);
      expect(await faults.isHeld(kept)).toBe(true);
      expect(await extendOn(store, leases[0]!, ttl)).toBe(false);
      await releaseOn(store, leases[1]!);
    });

    test('a waiter is notified and acquires the lock when nobody renews the etcd lease of the holder', async () => {
      const [dying, store] = [await openStore(faults.server), await openStore(faults.server)];
      const keys = [freshKey()];
      const waiter = { keys, mode: 'exclusive', process: 'f'.repeat(16), number: 1, owner: 'you' } as const;
      const told: unknown[] = [];
      const subscription = store.listen(waiter, (...message) => void told.push(message));
      await until(() => subscription.ready);
      const unrenewed = new Lease(keys, 'me', 3_000);
      await acquireOn(dying, unrenewed, { renewed: true });
      const next = new Lease(keys, 'you', TTL);
      const ask = () =>
        acquireOn(store, next, { ordered: true, position: { waiter, waited: 0, next: undefined } });
      await expect(ask()).resolves.toMatchObject({ granted: false });
      // The waiter does not ask again, so only the end of the etcd lease can cause the message.
      const released = [0, true, unrenewed.id];
      await until(() => told.some((message) => isDeepStrictEqual(message, released)), RELEASED_WITHIN);
      await expect(ask()).resolves.toMatchObject({ granted: true });
      subscription.stop();
      await releaseOn(store, next);
    });
  });

  describe('a server', () => {
    faults.restarts();

    test('a lock expires after its release failed during an etcd outage, even while its process acquires other locks', async () => {
      const mine = await startEtcd();
      const store = await openStore(mine);
      const ttl = 4_000;
      const [left, other] = [freshKey(), freshKey()];
      const lease = new Lease([left], 'me', ttl);
      await acquireOn(store, lease, { renewed: true });
      await mine.kill();
      const isGivenUp = (): Promise<boolean> =>
        releaseOn(store, lease).then(
          () => true,
          () => false,
        );
      await until(isGivenUp);
      // A restarted etcd counts the time of each lease from zero.
      await mine.start();
      const isLeft = async (): Promise<boolean> => (await mine.holders()).some((name) => name.includes(left));
      expect(await isLeft()).toBe(true);
      await until(async () => {
        const next = new Lease([other], 'me', ttl);
        await acquireOn(store, next, { renewed: true }).catch(() => undefined);
        await releaseOn(store, next).catch(() => undefined);
        return !(await isLeft());
      });
      await mine.stop();
    });

    test('`inspect` shows the token of a held lock also after the start of another process has raised the base', async () => {
      const mine = await startEtcd();
      const store = await openStore(mine);
      const redlock = redlockOver([store], PATIENT);
      const key = freshKey();
      const lock = await redlock.acquire([key], once);
      // A base that was written a moment ago is not raised.
      await until(async () => {
        const other = await faults.newProcess(mine);
        const next = await other.acquire([freshKey()], once);
        await next.release();
        await other.close();
        return next.fencingToken - lock.fencingToken > 2 ** 20;
      });
      expect(await store.read([key])).toMatchObject([{ holders: [{ fencingToken: lock.fencingToken }] }]);
      await expect(redlock.acquire([key], once)).rejects.toMatchObject({
        holders: [{ fencingToken: lock.fencingToken }],
      });
      await lock.release();
      await redlock.close();
      await mine.stop();
    });

    test('etcd continues with larger tokens after the stored base for tokens is deleted', async () => {
      const mine = await startEtcd();
      const redlock = await faults.newProcess(mine);
      const before = await redlock.acquire([freshKey()], once);
      await mine.call('kv/deleterange', { key: Buffer.from('nestjs-redlock/base').toString('base64') });
      const after = await redlock.acquire([freshKey()], once);
      expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
      await redlock.close();
      await mine.stop();
    });
  });

  (hasEtcd() && hasEtcdctl() ? describe : describe.skip)('a restored older copy of the data', () => {
    test.each(['an acquire', 'a release'])(
      'etcd restored from an older copy lacks newer locks, but gives larger tokens, when the first request is %s',
      async (first) => {
        const mine = await startEtcd();
        const [busy, idle] = [await faults.newProcess(mine), await faults.newProcess(mine)];
        const locks = async (redlock: Redlock): Promise<number> => {
          const lock = await redlock.acquire([freshKey()], waiting);
          await lock.release();
          return lock.fencingToken;
        };
        const tokens = [await locks(busy), await locks(idle)];
        const copy = await mine.copy();
        for (let count = 0; count < 30; count++) tokens.push(await locks(busy));
        const key = freshKey();
        const forgotten = await busy.acquire([key], once);
        tokens.push(forgotten.fencingToken);
        await mine.restore(copy);
        if (first === 'a release') await forgotten.release();
        // A token is the base in etcd plus the revision. The first process notices the restored copy, and the second
        // process has read the base before the restore. The third process starts later.
        tokens.push(await locks(busy), await locks(idle));
        const late = await faults.newProcess(mine);
        tokens.push(await locks(late));
        expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
        await expect(extendUntilConfirmed(forgotten)).rejects.toBeInstanceOf(LockLostError);
        const next = await late.acquire([key], once);
        expect(next.fencingToken).toBeGreaterThan(forgotten.fencingToken);
        await next.release();
        await Promise.all([busy, idle, late].map((redlock) => redlock.close()));
        await mine.stop();
      },
    );

    /** Restores a copy, but not while the base counts as fresh: no etcd is restored in so short a time. */
    async function restoreLater(mine: EtcdServer, copy: string): Promise<void> {
      await delay(FRESH_MS);
      await mine.restore(copy);
    }

    test('a process that starts after the restore gives larger tokens, when no process has noticed the restore', async () => {
      const mine = await startEtcd();
      const idle = await faults.newProcess(mine);
      const take = async (redlock: Redlock): Promise<number> => {
        const lock = await redlock.acquire([freshKey()], once);
        await lock.release();
        return lock.fencingToken;
      };
      const tokens = [await take(idle)];
      const copy = await mine.copy();
      for (let count = 0; count < 30; count++) tokens.push(await take(idle));
      const held = await idle.acquire([freshKey()], once);
      tokens.push(held.fencingToken);
      await restoreLater(mine, copy);
      const late = await faults.newProcess(mine);
      tokens.push(await take(late));
      // The revision of the restored etcd passes the revision that the first process has seen, so only the new base
      // shows that process that something has changed.
      for (let count = 0; count < 200; count++) await mine.call('kv/put', { key: 'eA==' });
      const more = await faults.newProcess(mine);
      tokens.push(await take(idle), await take(more), await take(late));
      expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => a - b));
      await Promise.all([idle, late, more].map((redlock) => redlock.close()));
      await mine.stop();
    });

    test('a process whose connection was cut by a restore gives larger tokens, although other programs have raised the revision', async () => {
      const mine = await startEtcd();
      const [busy, idle] = [await faults.newProcess(mine), await faults.newProcess(mine)];
      const take = async (redlock: Redlock): Promise<number> => {
        const lock = await redlock.acquire([freshKey()], waiting);
        await lock.release();
        return lock.fencingToken;
      };
      const copy = await mine.copy();
      const tokens = [await take(idle)];
      for (let count = 0; count < 30; count++) tokens.push(await take(busy));
      await busy.close();
      await restoreLater(mine, copy);
      // The revision is now above the last one that the idle process has seen, and below that of the last token.
      for (let count = 0; count < 30; count++) await mine.call('kv/put', { key: 'eA==' });
      tokens.push(await take(idle));
      expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
      await idle.close();
      await mine.stop();
    });

    test('after a copy of etcd is restored as a new cluster, a running process gets no locks, and a new process gets larger tokens', async () => {
      const mine = await startEtcd();
      const redlock = await faults.newProcess(mine);
      const copy = await mine.copy();
      // The copy has an older base and older revisions. The restored etcd must not give the tokens below again.
      const tokens: number[] = [];
      for (let count = 0; count < 30; count++) {
        const lock = await redlock.acquire([freshKey()], once);
        tokens.push(lock.fencingToken);
        await lock.release();
      }
      await mine.restore(copy, 'another-cluster');
      await expect(redlock.acquire([freshKey()], once)).rejects.toMatchObject({
        code: 'LOCK_UNAVAILABLE',
        message: expect.stringContaining('restored as a new cluster, restart this process'),
      });
      const restarted = await Promise.all([1, 2, 3].map(() => faults.newProcess(mine)));
      for (const each of restarted) tokens.push((await each.acquire([freshKey()], once)).fencingToken);
      expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => a - b));
      await Promise.all([redlock, ...restarted].map((each) => each.close()));
      await mine.stop();
    });
  });
});
