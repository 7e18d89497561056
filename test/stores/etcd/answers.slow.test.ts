import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { type FakeGateway, type GatewayRequest, startFakeGateway } from '../../support/etcd-gateway.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

// In these tests the store gets late, wrong or missing answers, from a fake gateway in front of a real etcd.

/**
 * Milliseconds. The time limit of a release or an extension is a tenth of this time: long enough for a busy machine.
 */
const TTL = 40_000;

/** Milliseconds; below the ttl, so that a test cannot pass because a key expired instead of being deleted. */
const DELETED_WITHIN = 0.75 * TTL;

/**
 * The answer of a leader that does not have the etcd lease in memory, or of a deposed leader that is asked for an etcd
 * lease that its successor has granted.
 */
const NO_LEASE = JSON.stringify({ result: { header: { revision: '1', raft_term: '2' }, TTL: '0' } });

const NO_LEADER = JSON.stringify({ error: 'etcdserver: no leader', code: 14 });

test('a server whose answers are not JSON is refused as an etcd endpoint, and the error asks for the gRPC gateway', async () => {
  const other = createServer((_, response) => response.end('<html>'));
  await new Promise<void>((listening) => other.listen(0, '127.0.0.1', listening));
  cleanUpAfterTests(async () => void other.close());
  const { port } = other.address() as AddressInfo;
  const store = new EtcdStore({ endpoints: `http://127.0.0.1:${port}` }, newTerms());
  cleanUpAfterTests(() => store.close());
  await expect(store.connect()).rejects.toThrow(
    'answered 200 and no JSON; check that its gRPC gateway is enabled (`enable-grpc-gateway`)',
  );
});

(hasEtcd() ? describe : describe.skip)('etcd', () => {
  let server: EtcdServer;
  let gateway: FakeGateway;
  let nextKey = 0;

  beforeAll(async () => {
    server = await startEtcd();
  });
  beforeEach(async () => {
    gateway = await startFakeGateway(server);
  });

  const freshKey = (): string => `key:${nextKey++}`;

  async function openStore(terms = newTerms()): Promise<EtcdStore> {
    const store = new EtcdStore({ endpoints: `http://${gateway.host}:${gateway.port}` }, terms);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return store;
  }

  /** Returns a set of ids: the etcd leases that the gateway grants from now on and that are not revoked. */
  function followLeases(
    also: (request: GatewayRequest) => string | undefined = () => undefined,
  ): Set<string> {
    const ids = new Set<string>();
    gateway.intercept = async (request) => {
      const { path, body } = request;
      if (path !== 'lease/grant' && path !== 'lease/revoke') return also(request);
      const answer = await request.pass();
      if (path === 'lease/grant') ids.add((JSON.parse(answer) as { ID: string }).ID);
      else ids.delete((JSON.parse(body) as { ID: string }).ID);
      return answer;
    };
    return ids;
  }

  async function holds({ keys: [key] }: Lease): Promise<boolean> {
    return (await server.holders()).some((name) => name.startsWith(`nestjs-redlock/lock/lock:${key}\0`));
  }

  /** True if the request stores the keys of the lease. */
  const stores = ({ path, body }: GatewayRequest, lease: Lease): boolean => {
    if (path !== 'kv/txn') return false;
    const { success = [] } = JSON.parse(body) as { success?: { request_put?: { key: string } }[] };
    return success.some(({ request_put: put }) =>
      Buffer.from(put?.key ?? '', 'base64')
        .toString()
        .endsWith(lease.id),
    );
  };

  const newLease = (ttl = TTL): Lease => new Lease([freshKey()], 'me', ttl);

  describe('a leader that says that a lease does not exist', () => {
    test('a wrong answer that a lease does not exist makes a renewal fail, but does not end a lock whose key exists', async () => {
      const store = await openStore();
      const lease = newLease();
      await acquireOn(store, lease, { renewed: true });
      gateway.intercept = ({ path }) => (path === 'lease/keepalive' ? NO_LEASE : undefined);
      await expect(extendOn(store, lease, TTL)).rejects.toThrow('reports that it has no lease');
      gateway.intercept = undefined;
      expect(await extendOn(store, lease, TTL)).toBe(true);
      await releaseOn(store, lease);
    });

    test('the store deletes the key of an unanswered acquire, even if the leader says that a lease does not exist', async () => {
      const store = await openStore();
      const [neighbour, lease] = [newLease(), newLease()];
      await acquireOn(store, neighbour, { renewed: true });
      // The answer to the acquisition is lost, and a renewal of the other lock gets the wrong answer. The store must still
      // delete the key.
      let isLost = false;
      gateway.intercept = async (request) => {
        if (request.path === 'lease/keepalive') return NO_LEASE;
        if (request.path !== 'kv/txn') return undefined;
        if (!isLost && !stores(request, lease)) return undefined;
        if (!isLost) await request.pass();
        isLost = true;
        return null;
      };
      const asked = acquireOn(store, lease, { renewed: true, limit: 3_000 });
      const lost = extendOn(store, neighbour, TTL);
      await expect(asked).rejects.toThrow('no answer within');
      await lost.catch(() => undefined);
      gateway.intercept = undefined;
      await until(async () => !(await holds(lease)), DELETED_WITHIN);
      expect(await extendOn(store, neighbour, TTL)).toBe(true);
      await releaseOn(store, neighbour);
    });
  });

  describe('the store', () => {
    test.each([
      ['`null`', 'null'],
      ['an empty object', '{}'],
      ['HTML', '<html>'],
    ])('the store rejects an acquire and deletes its key when etcd answers with %s', async (_, answer) => {
      const store = await openStore();
      const [neighbour, lease] = [newLease(), newLease()];
      await acquireOn(store, neighbour, { renewed: true });
      gateway.intercept = async (request) => {
        if (!stores(request, lease)) return undefined;
        await request.pass();
        return answer;
      };
      await expect(acquireOn(store, lease, { renewed: true })).rejects.toThrow('answered 200');
      await until(async () => !(await holds(lease)), DELETED_WITHIN);
      expect(await extendOn(store, neighbour, TTL)).toBe(true);
      await releaseOn(store, neighbour);
    });

    test("the store rejects a renewal with etcd's own words when etcd answers with an error", async () => {
      const store = await openStore();
      const lease = newLease();
      await acquireOn(store, lease, { renewed: true });
      const error = { grpc_code: 14, http_code: 503, message: 'etcdserver: no leader' };
      gateway.intercept = ({ path }) => (path === 'lease/keepalive' ? JSON.stringify({ error }) : undefined);
      await expect(extendOn(store, lease, TTL)).rejects.toThrow('etcdserver: no leader');
      gateway.intercept = undefined;
      await releaseOn(store, lease);
    });

    test('the store does not mark an etcd member as failed when a request times out before it is sent', async () => {
      const terms = newTerms();
      const store = await openStore(terms);
      const first = Array.from({ length: 64 }, () => newLease());
      let [waiting, mayAnswer] = [0, false];
      gateway.intercept = async (request) => {
        if (!first.some((lease) => stores(request, lease))) return undefined;
        waiting++;
        await until(() => mayAnswer);
        return undefined;
      };
      const asked = first.map((lease) => acquireOn(store, lease, { renewed: true }));
      // All connections to the member are in use.
      await until(() => waiting === first.length);
      await expect(acquireOn(store, newLease(), { renewed: true, limit: 300 })).rejects.toThrow(
        /was not asked|no time was left/,
      );
      expect(store.available).toBe(true);
      expect(terms.events).not.toContain('lost');
      mayAnswer = true;
      await Promise.all(asked);
      gateway.intercept = undefined;
      // One after the other: so many at once can take longer than a release may on a busy machine.
      for (const lease of first) await releaseOn(store, lease);
    });
  });

  describe('the etcd lease of one lock', () => {
    test('an etcd lease is used for the next attempt when the first attempt failed before it stored a key', async () => {
      const store = await openStore();
      await acquireOn(store, newLease());
      await server.call('kv/deleterange', { key: Buffer.from('nestjs-redlock/base').toString('base64') });
      let count = 0;
      const granted = followLeases(({ path }) => (path === 'kv/txn' && ++count > 1 ? NO_LEADER : undefined));
      await expect(acquireOn(store, newLease())).rejects.toThrow('no leader');
      const [spare] = granted;
      const again = followLeases();
      await acquireOn(store, newLease());
      expect([spare, again.size]).toEqual([expect.any(String), 0]);
    });

    test('an etcd lease is revoked after a refused attempt if another etcd lease is kept for later attempts', async () => {
      const store = await openStore();
      const holder = newLease();
      await acquireOn(store, holder);
      const granted = followLeases();
      const refused = Array.from({ length: 20 }, () => new Lease(holder.keys, 'me', TTL));
      const replies = await Promise.all(refused.map((lease) => acquireOn(store, lease)));
      expect(replies.every((reply) => !reply.granted)).toBe(true);
      await until(() => granted.size === 1);
      await releaseOn(store, holder);
    });

    test('an etcd lease lasts for the whole ttl when a later attempt uses it', async () => {
      const store = await openStore();
      const holder = newLease();
      await acquireOn(store, holder);
      expect(await acquireOn(store, new Lease(holder.keys, 'me', TTL))).toMatchObject({ granted: false });
      // The store has kept the etcd lease of the refused attempt. If the store did not renew it, the lock would end half
      // a second too early.
      await delay(500);
      await releaseOn(store, holder);
      const asked = performance.now();
      const reply = await acquireOn(store, new Lease(holder.keys, 'me', TTL));
      expect(reply).toMatchObject({ granted: true });
      expect(reply.granted && reply.validFrom?.monotonic).toBeGreaterThanOrEqual(asked);
    });
  });

  describe('a lock whose ttl is extended', () => {
    test('a lock leaves no key when it is released during an extension', async () => {
      const store = await openStore();
      const lease = newLease();
      await acquireOn(store, lease);
      let [isGranting, isReleasing, isMoved] = [false, false, false];
      gateway.intercept = async (request) => {
        if (request.path === 'lease/grant') {
          isGranting = true;
          await until(() => isReleasing);
        }
        if (request.path === 'lease/revoke') {
          isReleasing = true;
          const limit = performance.now() + 300;
          await until(() => isMoved || performance.now() > limit);
        }
        if (!stores(request, lease)) return undefined;
        const answer = await request.pass();
        isMoved = true;
        return answer;
      };
      const extended = extendOn(store, lease, 2 * TTL);
      await until(() => isGranting);
      await releaseOn(store, lease);
      expect(await extended).toBe(false);
      expect(await holds(lease)).toBe(false);
    });

    test('a lock leaves no key after its release when two extensions got invalid answers', async () => {
      const store = await openStore();
      const lease = newLease();
      await acquireOn(store, lease);
      const kept: string[] = [];
      gateway.intercept = (request) => {
        if (!stores(request, lease)) return undefined;
        kept.push(request.body);
        return '<html>';
      };
      await expect(extendOn(store, lease, 2 * TTL)).rejects.toThrow('answered 200');
      await expect(extendOn(store, lease, 2 * TTL)).rejects.toThrow('answered 200');
      gateway.intercept = undefined;
      expect(kept).toHaveLength(2);
      expect(await server.call('kv/txn', JSON.parse(kept[0]!) as object)).toMatchObject({ succeeded: true });
      await releaseOn(store, lease);
      expect(await holds(lease)).toBe(false);
    });
  });

  describe('a release', () => {
    test('a release that gets no answer is sent again, one request at a time', async () => {
      const store = await openStore();
      // The time limit of a release is a tenth of this ttl.
      const lease = newLease(20_000);
      await acquireOn(store, lease);
      let [running, most, count] = [0, 0, 0];
      gateway.intercept = async ({ path }) => {
        if (path !== 'lease/revoke') return undefined;
        count++;
        most = Math.max(most, ++running);
        await delay(1_900);
        running--;
        return null;
      };
      await expect(releaseOn(store, lease)).rejects.toThrow('no answer');
      await until(() => count > 1);
      await delay(1_000);
      // On a slow machine the connection is old by the time of the release, which is then sent over a new one, too.
      expect(most).toBeLessThanOrEqual(2);
      gateway.intercept = undefined;
      await until(async () => !(await holds(lease)), 12_000);
    });

    test('a release is sent again only until the ttl of the lock has passed', async () => {
      const store = await openStore();
      const lease = newLease(4_000);
      await acquireOn(store, lease);
      let count = 0;
      gateway.intercept = ({ path }) => {
        if (path === 'lease/revoke') count++;
        return path === 'lease/revoke' ? NO_LEADER : undefined;
      };
      await expect(releaseOn(store, lease)).rejects.toThrow('no leader');
      // A failed release is sent again after half a second. The loop ends after twenty short waits without a request.
      for (let [quiet, before] = [0, count]; quiet < 20; quiet++) {
        await delay(100);
        if (count !== before) [quiet, before] = [0, count];
      }
      expect(count).toBeGreaterThan(2);
    });
  });

  test('the store lets an unrenewed lock expire while other locks with the same ttl are acquired and released', async () => {
    const store = await openStore();
    const forgotten = newLease(2_000);
    const began = performance.now();
    await acquireOn(store, forgotten, { renewed: true });
    await until(async () => {
      const lease = newLease(2_000);
      // A busy machine may be too late for so short a ttl.
      await acquireOn(store, lease, { renewed: true }).catch(() => undefined);
      await releaseOn(store, lease).catch(() => undefined);
      await delay(100);
      return !(await holds(forgotten));
    }, 30_000);
    expect(performance.now() - began).toBeGreaterThanOrEqual(2_000);
  });

  test.each([
    ['one with a lower slot', 0],
    ['only one with a slot above the number of the caller', 7],
  ])('a grant reports a larger number of permits that another holder asked for: %s', async (_, kept) => {
    const store = await openStore();
    const keys = [freshKey(), freshKey()];
    const ofKind = (permits: number) => new Lease(keys, 'me', TTL, undefined, { mode: 'permits', permits });
    const others = Array.from({ length: 8 }, () => ofKind(8));
    for (const other of others) await acquireOn(store, other, { renewed: true });
    for (const [slot, other] of others.entries()) if (slot !== kept) await releaseOn(store, other);
    expect(await acquireOn(store, ofKind(2), { renewed: true })).toMatchObject({ granted: true, permits: 8 });
    const same = await acquireOn(store, ofKind(8), { renewed: true });
    expect(same).toMatchObject({ granted: true });
    expect(same).not.toHaveProperty('permits');
  });

  test('the store grants each permit in one round trip up to the limit, and grants released permits again', async () => {
    const store = await openStore();
    const kind = { mode: 'permits', permits: 100 } as const;
    const key = freshKey();
    const fill = async (count: number): Promise<Lease[]> => {
      const leases = Array.from({ length: count }, () => new Lease([key], 'me', TTL, undefined, kind));
      const replies = await Promise.all(leases.map((lease) => acquireOn(store, lease, { renewed: true })));
      expect(replies.every(({ granted }) => granted)).toBe(true);
      return leases;
    };
    await fill(1);
    let count = 0;
    gateway.intercept = ({ path, body }) => {
      if (path === 'kv/txn' && body.includes('request_put')) count++;
      return undefined;
    };
    const first = await fill(60);
    expect(count).toBe(60);
    await Promise.all(first.slice(10, 30).map((lease) => releaseOn(store, lease)));
    await fill(59);
    const refused = new Lease([key], 'me', TTL, undefined, kind);
    expect(await acquireOn(store, refused, { renewed: true })).toMatchObject({
      granted: false,
      permits: 100,
    });
    await releaseOn(store, first[0]!);
    expect(await acquireOn(store, refused, { renewed: true })).toMatchObject({ granted: true });
    expect((await server.holders()).filter((name) => name.includes(`${key}\0`))).toHaveLength(100);
  });
});
