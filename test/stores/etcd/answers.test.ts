import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { type FakeGateway, type GatewayRequest, startFakeGateway } from '../../support/etcd-gateway.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

// What the store makes of answers that are late, wrong or missing: a gateway in front of a real etcd gives them.

const TTL = 20_000;

/** A leader that does not have the lease in its memory says so; one that was deposed says it of leases of the next term. */
const NO_LEASE = JSON.stringify({ result: { header: { revision: '1', raft_term: '2' }, TTL: '0' } });

const NO_LEADER = JSON.stringify({ error: 'etcdserver: no leader', code: 14 });

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

  /** How many leases there are in etcd. */
  async function countLeases(): Promise<number> {
    return (await server.call<{ leases?: unknown[] }>('lease/leases', {})).leases?.length ?? 0;
  }

  async function holds({ keys: [key] }: Lease): Promise<boolean> {
    return (await server.holders()).some((name) => name.startsWith(`nestjs-redlock/lock/lock:${key}\0`));
  }

  /** Whether the request stores the lease. */
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

  describe('a leader that does not know a lease of etcd', () => {
    test('does not end a lock whose key exists: the result of its renewal is unknown', async () => {
      const store = await openStore();
      const lease = newLease();
      await acquireOn(store, lease, { renewed: true });
      gateway.intercept = ({ path }) => (path === 'lease/keepalive' ? NO_LEASE : undefined);
      await expect(extendOn(store, lease, TTL)).rejects.toThrow('says that it has no lease');
      gateway.intercept = undefined;
      expect(await extendOn(store, lease, TTL)).toBe(true);
      await releaseOn(store, lease);
    });

    test('does not prevent the deletion of an unanswered acquisition', async () => {
      const store = await openStore();
      const [neighbour, lease] = [newLease(), newLease()];
      await acquireOn(store, neighbour, { renewed: true });
      // The answer to the acquisition is lost, and what deletes it comes after the wrong answer to a renewal.
      let isLost = false;
      gateway.intercept = async (request) => {
        if (request.path === 'lease/keepalive') return NO_LEASE;
        if (request.path !== 'kv/txn') return undefined;
        if (!isLost && !stores(request, lease)) return undefined;
        if (!isLost) await request.pass();
        isLost = true;
        return null;
      };
      const asked = acquireOn(store, lease, { renewed: true, limit: 300 });
      const lost = extendOn(store, neighbour, TTL);
      await expect(asked).rejects.toThrow('no answer within');
      await lost.catch(() => undefined);
      gateway.intercept = undefined;
      await until(async () => !(await holds(lease)), 5_000);
      expect(await extendOn(store, neighbour, TTL)).toBe(true);
      await releaseOn(store, neighbour);
    });
  });

  describe('an answer', () => {
    test.each([
      ['that is no object', 'null'],
      ['that is not an answer of etcd', '{}'],
      ['that is no JSON', '<html>'],
    ])('%s leaves an acquisition unknown: its key is deleted', async (_, answer) => {
      const store = await openStore();
      const [neighbour, lease] = [newLease(), newLease()];
      await acquireOn(store, neighbour, { renewed: true });
      gateway.intercept = async (request) => {
        if (!stores(request, lease)) return undefined;
        await request.pass();
        return answer;
      };
      await expect(acquireOn(store, lease, { renewed: true })).rejects.toThrow('answered 200');
      await until(async () => !(await holds(lease)), 5_000);
      expect(await extendOn(store, neighbour, TTL)).toBe(true);
      await releaseOn(store, neighbour);
    });

    test("with an error to a renewal is reported in etcd's words", async () => {
      const store = await openStore();
      const lease = newLease();
      await acquireOn(store, lease, { renewed: true });
      const error = { grpc_code: 14, http_code: 503, message: 'etcdserver: no leader' };
      gateway.intercept = ({ path }) => (path === 'lease/keepalive' ? JSON.stringify({ error }) : undefined);
      await expect(extendOn(store, lease, TTL)).rejects.toThrow('etcdserver: no leader');
      gateway.intercept = undefined;
      await releaseOn(store, lease);
    });

    test('that is no longer awaited does not mark a member as failed', async () => {
      const terms = newTerms();
      const store = await openStore(terms);
      gateway.intercept = async ({ path }) => {
        if (path === 'kv/txn') await delay(1_000);
        return undefined;
      };
      const first = Array.from({ length: 64 }, () => newLease());
      const asked = first.map((lease) => acquireOn(store, lease, { renewed: true, limit: 10_000 }));
      await delay(300);
      await expect(acquireOn(store, newLease(), { renewed: true, limit: 100 })).rejects.toThrow(
        'was not asked',
      );
      expect(store.available).toBe(true);
      expect(terms.events).not.toContain('lost');
      await Promise.all(asked);
      gateway.intercept = undefined;
      await Promise.all(first.map((lease) => releaseOn(store, lease)));
    });
  });

  describe('the etcd lease of one lock', () => {
    test('is used again when the attempt ended before its request', async () => {
      const store = await openStore();
      await acquireOn(store, newLease());
      const before = await countLeases();
      await server.call('kv/deleterange', { key: Buffer.from('nestjs-redlock/base').toString('base64') });
      let count = 0;
      gateway.intercept = ({ path }) => (path === 'kv/txn' && ++count > 1 ? NO_LEADER : undefined);
      await expect(acquireOn(store, newLease())).rejects.toThrow('no leader');
      gateway.intercept = undefined;
      await acquireOn(store, newLease());
      expect(await countLeases()).toBe(before + 1);
    });

    test('is revoked when enough leases are ready for later attempts', async () => {
      const store = await openStore();
      const holder = newLease();
      await acquireOn(store, holder);
      const before = await countLeases();
      const refused = Array.from({ length: 20 }, () => new Lease(holder.keys, 'me', TTL));
      const replies = await Promise.all(refused.map((lease) => acquireOn(store, lease, { limit: 10_000 })));
      expect(replies.every(({ granted }) => !granted)).toBe(true);
      await until(async () => (await countLeases()) === before + 1);
      await releaseOn(store, holder);
    });

    test('lasts for the whole ttl, though it was granted for an earlier attempt', async () => {
      const store = await openStore();
      const holder = newLease();
      await acquireOn(store, holder);
      expect(await acquireOn(store, new Lease(holder.keys, 'me', TTL))).toMatchObject({ granted: false });
      await delay(500);
      await releaseOn(store, holder);
      const asked = performance.now();
      const reply = await acquireOn(store, new Lease(holder.keys, 'me', TTL));
      expect(reply).toMatchObject({ granted: true });
      expect(reply.granted && reply.validFrom?.monotonic).toBeGreaterThanOrEqual(asked);
    });
  });

  describe('a lock with an extended ttl', () => {
    test('leaves nothing when it is released during the extension', async () => {
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
          await Promise.race([until(() => isMoved), delay(300)]);
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

    test('leaves nothing when the result of several extensions is unknown', async () => {
      const store = await openStore();
      const lease = newLease(2_000);
      await acquireOn(store, lease);
      const kept: string[] = [];
      gateway.intercept = (request) => {
        if (!stores(request, lease)) return undefined;
        kept.push(request.body);
        return null;
      };
      await expect(extendOn(store, lease, 3_000)).rejects.toThrow('no answer');
      await expect(extendOn(store, lease, 3_000)).rejects.toThrow('no answer');
      gateway.intercept = undefined;
      expect(kept).toHaveLength(2);
      expect(await server.call('kv/txn', JSON.parse(kept[0]!) as object)).toMatchObject({ succeeded: true });
      await releaseOn(store, lease);
      expect(await holds(lease)).toBe(false);
    });
  });

  describe('a release', () => {
    test('without an answer is sent again, one request at a time', async () => {
      const store = await openStore();
      const lease = newLease();
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
      await until(() => count > 1, 5_000);
      await delay(1_000);
      expect(most).toBe(1);
      gateway.intercept = undefined;
      await until(async () => !(await holds(lease)), 5_000);
    });

    test('is abandoned when the ttl of the lock is over', async () => {
      const store = await openStore();
      const lease = newLease(2_000);
      await acquireOn(store, lease);
      let count = 0;
      gateway.intercept = ({ path }) => {
        if (path === 'lease/revoke') count++;
        return path === 'lease/revoke' ? NO_LEADER : undefined;
      };
      await expect(releaseOn(store, lease)).rejects.toThrow('no leader');
      await delay(4_000);
      const tried = count;
      expect(tried).toBeGreaterThan(2);
      await delay(1_500);
      expect(count).toBe(tried);
    });
  });

  test('ends a lock without renewal, though others acquire and release locks of its ttl', async () => {
    const store = await openStore();
    const forgotten = newLease(2_000);
    await acquireOn(store, forgotten, { renewed: true });
    const began = performance.now();
    while (await holds(forgotten)) {
      expect(performance.now() - began).toBeLessThan(6_000);
      const lease = newLease(2_000);
      await acquireOn(store, lease, { renewed: true });
      await releaseOn(store, lease);
      await delay(100);
    }
    expect(performance.now() - began).toBeGreaterThanOrEqual(2_000);
  });

  test('grants each permit of a key in one round trip, up to the limit, and grants released permits again', async () => {
    const store = await openStore();
    const kind = { mode: 'permits', permits: 100 } as const;
    const key = freshKey();
    const fill = async (count: number): Promise<Lease[]> => {
      const leases = Array.from({ length: count }, () => new Lease([key], 'me', TTL, undefined, kind));
      const replies = await Promise.all(
        leases.map((lease) => acquireOn(store, lease, { renewed: true, limit: 10_000 })),
      );
      expect(replies.every(({ granted }) => granted)).toBe(true);
      return leases;
    };
    await fill(1);
    let count = 0;
    gateway.intercept = ({ path }) => {
      if (path === 'kv/txn') count++;
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
