import { afterAll, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { readPass } from '../../../lib/core/pass.js';
import type { NodeCheck } from '../../../lib/core/node-status.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import {
  ANY_VERSION,
  create,
  getChildren,
  getData,
  multi,
  type Request,
  setData,
} from '../../../lib/stores/zookeeper/client/requests.js';
import { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { Refusal, ZooKeeperError } from '../../../lib/stores/zookeeper/client/zookeeper-error.js';
import { Names } from '../../../lib/stores/zookeeper/names.js';
import type { ZooKeeperOptions } from '../../../lib/stores/zookeeper/zookeeper.options.js';
import { ZooKeeperStore } from '../../../lib/stores/zookeeper/zookeeper-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, startZooKeeper, type ZooKeeperServer } from '../../support/zookeeper-server.js';

const TTL = 60_000;

const names = new Names(newTerms().keyPrefix);

const once: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

const freshKey = (): string => `key:${randomUUID()}`;

/**
 * Keeps the next transaction back, as a network may do, and ends its connection for the caller. `deliver` sends it over
 * the connection of the present session: ZooKeeper itself refuses what an earlier connection of a session still sends.
 */
function keepNextTransaction(): { readonly deliver: () => Promise<unknown> } {
  const { ask } = ZooKeeperClient.prototype;
  let deliver: (() => Promise<unknown>) | undefined;
  const spy = jest.spyOn(ZooKeeperClient.prototype, 'ask');
  spy.mockImplementation(function keep<Reply>(
    this: ZooKeeperClient,
    request: Request<Reply>,
    limit: number,
  ): Promise<Reply> {
    if (deliver || request.op !== multi([]).op) return ask.call(this, request, limit) as Promise<Reply>;
    spy.mockRestore();
    deliver = () => ask.call(this, request, limit).catch((error: unknown) => error);
    return Promise.reject(new ZooKeeperError('the connection was cut', false));
  });
  return { deliver: () => deliver!() };
}

(hasZooKeeper() ? describe : describe.skip)('a store in one ZooKeeper', () => {
  let server: ZooKeeperServer;
  let proxy: TcpProxy;
  let witness: ZooKeeperStore;

  beforeAll(async () => {
    server = await startZooKeeper();
    proxy = await startTcpProxy(server);
    witness = await openStore();
  }, 180_000);
  beforeEach(() => proxy.heal());
  afterAll(async () => {
    await proxy.close();
    await server.stop();
  });

  async function openStore(options: Partial<ZooKeeperOptions> = {}): Promise<ZooKeeperStore> {
    const store = new ZooKeeperStore({ connectionString: server.address, ...options }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return store;
  }

  /** A client of another program. */
  async function openClient(): Promise<ZooKeeperClient> {
    const client = new ZooKeeperClient(
      { connectionString: server.address },
      { ready: () => undefined, lost: () => undefined, watch: () => undefined },
    );
    cleanUpAfterTests(() => client.close(1_000));
    await client.open();
    return client;
  }

  const throughProxy = (): Promise<ZooKeeperStore> =>
    openStore({ connectionString: `${proxy.host}:${proxy.port}` });

  async function newProcess(store?: ZooKeeperStore): Promise<Redlock> {
    return redlockOver([store ?? (await openStore())], PATIENT);
  }

  async function holdersOf(key: string): Promise<readonly string[]> {
    const [state] = await witness.read([key]);
    if (state instanceof Error) throw state;
    return (state?.holders ?? []).map(({ id }) => id);
  }

  test('a waiter of another process gets the lock when it is released, and its fencing token is larger', async () => {
    const [one, other] = [await newProcess(), await newProcess()];
    const key = freshKey();
    const lock = await one.acquire([key], once);
    await expect(other.acquire([key], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
    const next = other.acquire([key], waiting);
    await until(async () => (await witness.waiting([key]))[0]?.length === 1);
    await lock.release();
    const held = await next;
    expect(held.fencingToken).toBeGreaterThan(lock.fencingToken);
    await held.release();
    expect(await holdersOf(key)).toEqual([]);
  });

  test('many calls of one process for one key are written together', async () => {
    const store = await openStore();
    const key = freshKey();
    const leases = Array.from(
      { length: 40 },
      () => new Lease([key], 'me', TTL, undefined, { mode: 'shared' }),
    );
    const writes = async (): Promise<number> =>
      (await (await openClient()).ask(getData(names.pathOf(key)), TTL)).stat.version;
    await Promise.all(leases.map((lease) => acquireOn(store, lease)));
    expect(await holdersOf(key)).toHaveLength(40);
    const acquired = await writes();
    expect(acquired).toBeLessThanOrEqual(3);
    await Promise.all(leases.map((lease) => releaseOn(store, lease)));
    expect(await holdersOf(key)).toEqual([]);
    expect((await writes()) - acquired).toBeLessThanOrEqual(3);
  });

  test('of the processes in a queue two watch the key, and each of the others watches the entry in front of its own', async () => {
    const key = freshKey();
    const lock = await (await newProcess()).acquire([key], once);
    const calls: Promise<{ release(): Promise<void> }>[] = [];
    for (let count = 1; count <= 5; count++) {
      calls.push((await newProcess()).acquire([key], waiting));
      await until(async () => (await witness.waiting([key]))[0]?.length === count);
    }
    const entries = await (await openClient()).ask(getChildren(names.queueOf(key)), TTL);
    const inOrder = entries.toSorted().map((name) => `${names.queueOf(key)}/${name}`);
    // The first one has no entry in front of its own, and the last one has none behind it.
    const wanted = [[names.pathOf(key), 2], ...inOrder.slice(0, -1).map((path) => [path, 1])].toSorted();
    let present: unknown[] = [];
    await until(async () => {
      const watches = [...(await server.watches())];
      present = watches.filter(([path]) => path === names.pathOf(key) || inOrder.includes(path)).toSorted();
      return JSON.stringify(present) === JSON.stringify(wanted);
    }, 60_000).catch(() => undefined);
    expect(present).toEqual(wanted);
    await lock.release();
    for (const call of calls) await (await call).release();
  });

  test('frees the key of an acquisition whose answer was lost', async () => {
    const redlock = await newProcess(await throughProxy());
    const key = freshKey();
    // A process that knows the version of a key sends the write at once.
    await (await redlock.acquire([key], once)).release();
    proxy.dropReplies();
    const acquiring = redlock.acquire([key], once);
    acquiring.catch(() => undefined);
    await until(async () => (await holdersOf(key)).length === 1);
    // The answer may still be on its way to the proxy: without the cut, it would arrive after all.
    proxy.cut();
    await proxy.heal();
    await expect(acquiring).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await until(async () => (await holdersOf(key)).length === 0);
  });

  test('an acquisition that arrives after its release was confirmed stores nothing (S6, S27)', async () => {
    const store = await openStore();
    const [known, fresh] = [freshKey(), freshKey()];
    const before = new Lease([known], 'me', TTL);
    await acquireOn(store, before);
    await releaseOn(store, before);
    const lease = new Lease([known, fresh], 'me', TTL);
    const late = keepNextTransaction();
    await expect(acquireOn(store, lease)).rejects.toThrow('the connection was cut');
    lease.ended = true;
    await releaseOn(store, lease);
    expect(await late.deliver()).toMatchObject({ code: Refusal.badVersion });
    expect([await holdersOf(known), await holdersOf(fresh)]).toEqual([[], []]);
    // The keys can be locked as before.
    expect(await acquireOn(store, new Lease([known, fresh], 'me', TTL))).toMatchObject({ granted: true });
  });

  test('a renewal that arrives after the end of its lock does not restore the lock (S9)', async () => {
    const store = await openStore();
    const key = freshKey();
    const lease = new Lease([key], 'me', TTL);
    await acquireOn(store, lease);
    const late = keepNextTransaction();
    await expect(extendOn(store, lease, TTL)).rejects.toThrow('the connection was cut');
    expect(await witness.forceRelease(key, [lease.id])).toEqual([lease.id]);
    expect(await late.deliver()).toMatchObject({ code: Refusal.badVersion });
    expect(await holdersOf(key)).toEqual([]);
  });

  test('a lock goes to another process, which a third one waits for as for any holder', async () => {
    const [api, worker] = [await newProcess(), await newProcess()];
    const [key, other] = [freshKey(), freshKey()].toSorted() as [string, string];
    const lock = await api.acquire([key, other], once);
    const attached = await worker.attach(readPass(await lock.detach()), once);
    expect([attached.fencingToken, await holdersOf(other)]).toEqual([lock.fencingToken, [attached.id]]);
    const next = api.acquire([key], waiting);
    await until(async () => (await witness.waiting([key]))[0]?.length === 1);
    await attached.release();
    const held = await next;
    expect(held.fencingToken).toBeGreaterThan(lock.fencingToken);
    await held.release();
  });

  test('an exchange that arrives after the lock was given back changes nothing (S16)', async () => {
    const store = await openStore();
    const keys = [freshKey(), freshKey()];
    const [lease, detached] = [new Lease(keys, 'me', TTL), new Lease(keys, 'me', TTL)];
    await acquireOn(store, lease);
    const request = { since: Date.now(), limit: TTL, guard: 0 };
    const late = keepNextTransaction();
    const exchanging = store.exchange({ ...request, lease: detached, replaces: [lease.id] });
    await expect(exchanging).rejects.toThrow('the connection was cut');
    detached.ended = true;
    expect(await store.exchange({ ...request, lease, replaces: [detached.id] })).toBe(true);
    expect(await late.deliver()).toMatchObject({ code: Refusal.badVersion });
    expect(await extendOn(store, lease, TTL)).toBe(true);
    for (const key of keys) expect(await holdersOf(key)).toEqual([lease.id]);
  });

  test('a lease of an exchange whose answer was lost is released, and a late exchange does not store it (S27)', async () => {
    const store = await openStore();
    const keys = [freshKey()];
    const [lease, next] = [new Lease(keys, 'me', TTL), new Lease(keys, 'me', TTL)];
    await acquireOn(store, lease);
    const late = keepNextTransaction();
    const exchanging = store.exchange({ lease: next, replaces: [lease.id], since: 0, limit: TTL, guard: 0 });
    await expect(exchanging).rejects.toThrow('the connection was cut');
    next.ended = true;
    await releaseOn(store, next);
    expect(await late.deliver()).toMatchObject({ code: Refusal.badVersion });
    expect(await holdersOf(keys[0]!)).toEqual([lease.id]);
  });

  test('another process takes a lock over only when its ttl has passed since the last renewal, or since it went to another process', async () => {
    // So long that a busy machine sends the renewal before the ttl has passed.
    const ttl = 5_000;
    const isTakenOver = async (
      prolong: (store: ZooKeeperStore, lease: Lease) => Promise<Lease>,
    ): Promise<void> => {
      const [one, other] = [await openStore(), await openStore()];
      const lease = new Lease([freshKey()], 'me', ttl);
      await acquireOn(one, lease);
      const asks = async (): Promise<boolean> =>
        (await acquireOn(other, new Lease(lease.keys, 'other', TTL))).granted;
      // The process knows the stamp of the first lease before that changes.
      expect(await asks()).toBe(false);
      const sent = performance.now();
      const held = await prolong(one, lease);
      await until(async () => {
        await delay(20);
        return asks();
      });
      expect(performance.now() - sent).toBeGreaterThanOrEqual(ttl);
      expect(await extendOn(one, held, ttl)).toBe(false);
    };
    await Promise.all([
      isTakenOver(async (store, lease) => {
        expect(await extendOn(store, lease, ttl)).toBe(true);
        return lease;
      }),
      isTakenOver(async (store, lease) => {
        const detached = new Lease(lease.keys, 'me', ttl);
        const request = { lease: detached, replaces: [lease.id], since: Date.now(), limit: TTL, guard: 0 };
        expect(await store.exchange(request)).toBe(true);
        return detached;
      }),
    ]);
  });

  test('a process that asks once gets the lock of a holder that crashed long ago, unless `compareTimes` is off', async () => {
    const asks = async (key: string, compareTimes: boolean): Promise<boolean> => {
      const store = await openStore({ compareTimes });
      const { granted } = await acquireOn(store, new Lease([key], 'cron', TTL));
      await store.close();
      return granted;
    };
    let taken = '';
    // On a busy machine a write can take longer than the difference of clocks that the comparison allows.
    await until(async () => {
      taken = freshKey();
      await acquireOn(witness, new Lease([taken], 'crashed', 500));
      await delay(1_600);
      return asks(taken, true);
    });
    // The new holder has not crashed.
    expect(await asks(taken, true)).toBe(false);

    const other = freshKey();
    await acquireOn(await openStore(), new Lease([other], 'crashed', 500));
    const watching = await openStore({ compareTimes: false });
    await until(async () => (await acquireOn(watching, new Lease([other], 'waiter', 500))).granted);
    // The first lock has ended for this process, but a new process has not watched it.
    const late = await openStore({ compareTimes: false });
    expect((await acquireOn(late, new Lease([other], 'cron', TTL))).granted).toBe(false);
    // The clean-up reads the leader's clock for its own use.
    await delay(1_600);
    const cleaner = await openStore({ compareTimes: false });
    await cleaner.sweep(TTL);
    expect((await acquireOn(cleaner, new Lease([other], 'cron', TTL))).granted).toBe(false);
  });

  test('deletes the nodes of unused keys, after which a write that compares with an old version fails', async () => {
    const store = await openStore();
    const [used, unused] = [freshKey(), freshKey()];
    const kept = new Lease([used], 'me', TTL);
    await acquireOn(store, kept);
    const useOnce = async (by: ZooKeeperStore): Promise<void> => {
      const lease = new Lease([unused], 'me', TTL);
      await acquireOn(by, lease);
      await releaseOn(by, lease);
    };
    await useOnce(store);
    const late = keepNextTransaction();
    await expect(acquireOn(store, new Lease([unused], 'late', TTL))).rejects.toThrow(
      'the connection was cut',
    );
    // Another process deletes the node, and brings a new one to the same version.
    const other = await openStore();
    await until(async () => (await other.sweep(-TTL)) > 0);
    expect(await holdersOf(used)).toEqual([kept.id]);
    await useOnce(other);
    expect(await late.deliver()).toMatchObject({ code: Refusal.badVersion });
    expect(await holdersOf(unused)).toEqual([]);
    expect(await acquireOn(store, new Lease([unused], 'me', TTL))).toMatchObject({ granted: true });
    expect(await extendOn(store, kept, TTL)).toBe(true);
  });

  test('deletes the nodes of crashed holders, and those beside a node that cannot be deleted', async () => {
    const store = await openStore({ compareTimes: false });
    const [crashed, inUse, foreign] = [freshKey(), freshKey(), freshKey()];
    const live = new Lease([inUse], 'me', TTL);
    await acquireOn(store, new Lease([crashed], 'crashed', 500));
    await acquireOn(store, live);
    const client = await openClient();
    const nodeOf = (key: string): string => `k${encodeURIComponent(`lock:${key}`)}`;
    const lease = new Lease([foreign], 'me', TTL);
    await acquireOn(store, lease);
    await releaseOn(store, lease);
    const queue = `/nestjs-redlock/queues/${nodeOf(foreign)}`;
    await client.ask(create(queue, Buffer.alloc(0), { access: 'world' }), TTL);
    await client.ask(create(`${queue}/theirs`, Buffer.from('theirs'), { access: 'world' }), TTL);

    const nodes = async (): Promise<readonly string[]> =>
      client.ask(getChildren('/nestjs-redlock/locks'), TTL);
    await store.sweep(-TTL);
    // This process has not watched the crashed holder for its ttl yet, and compares no times.
    expect(await nodes()).toContain(nodeOf(crashed));
    await until(async () => {
      await store.sweep(-TTL);
      return !(await nodes()).includes(nodeOf(crashed));
    });
    expect(await nodes()).toEqual(expect.arrayContaining([nodeOf(inUse), nodeOf(foreign)]));
    expect((await client.ask(getData(`${queue}/theirs`), TTL)).data.toString()).toBe('theirs');
    expect(await extendOn(store, live, TTL)).toBe(true);
  });

  test('a new process does not show the lock of a holder that crashed long ago, unless `compareTimes` is off', async () => {
    let key = '';
    // On a busy machine a write can take longer than the difference of clocks that the comparison allows.
    await until(async () => {
      key = freshKey();
      await acquireOn(witness, new Lease([key], 'crashed', 500));
      await delay(1_600);
      const [state] = await (await openStore()).read([key]);
      return state === undefined;
    });
    const [state] = await (await openStore({ compareTimes: false })).read([key]);
    expect(state).toMatchObject({ holders: [{ owner: 'crashed' }] });
  });

  test('before the first process, a check finds the path, and reports one that is missing', async () => {
    const client = await openClient();
    await client.ask(create('/fresh', Buffer.alloc(0), { access: 'world' }), TTL);
    const checked = async (path: string): Promise<NodeCheck> => {
      const options = { connectionString: `${server.address}${path}` };
      const store = new ZooKeeperStore(options, { ...newTerms(), looksOnly: true });
      cleanUpAfterTests(() => store.close());
      await store.connect();
      return store.check();
    };
    expect(await checked('/fresh')).toEqual({ state: 'voting', warnings: [] });
    expect(await client.ask(getChildren('/fresh'), TTL)).toEqual([]);
    expect(await checked('/missing')).toMatchObject({
      state: 'unfit',
      reason: expect.stringMatching(/the path/),
    });
  });

  test('frees the key of an acquisition whose answer was cut in the middle', async () => {
    const redlock = await newProcess(await throughProxy());
    const key = freshKey();
    await (await redlock.acquire([key], once)).release();
    proxy.cutInsideReply();
    await expect(redlock.acquire([key], once)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await until(async () => (await holdersOf(key)).length === 0);
    await until(async () =>
      redlock.acquire([key], once).then(
        () => true,
        () => false,
      ),
    );
  });

  test('a waiter that leaves the queue while the connection is cut is removed over the next connection', async () => {
    const key = freshKey();
    await acquireOn(witness, new Lease([key], 'holder', TTL));
    const redlock = await newProcess(await throughProxy());
    const leaves = new AbortController();
    const gone = redlock.acquire([key], { ...waiting, signals: [leaves.signal] });
    const queueLength = async (): Promise<number> => (await witness.waiting([key]))[0]!.length;
    await until(async () => (await queueLength()) === 1);
    proxy.refuse();
    proxy.cut();
    leaves.abort(new Error('not wanted any more'));
    await expect(gone).rejects.toThrow('not wanted any more');
    await proxy.accept();
    await until(async () => (await queueLength()) === 0);
  });

  // Only the first key has a view from after the deletion. Its generation says nothing about the other key.
  test('a lock of several keys does not trust what it knows of a key from before a deletion', async () => {
    const [store, other] = [await openStore(), await openStore()];
    const [first, second] = [freshKey(), freshKey()];
    const useOnce = async (by: ZooKeeperStore, key: string): Promise<void> => {
      const lease = new Lease([key], 'me', TTL);
      await acquireOn(by, lease);
      await releaseOn(by, lease);
    };
    await useOnce(store, second);
    await until(async () => (await other.sweep(-TTL)) > 0);
    // Another process brings the new node to the version that the deleted one had, and holds it.
    const held = new Lease([second], 'other', TTL);
    await acquireOn(other, held);
    expect(await extendOn(other, held, TTL)).toBe(true);
    await useOnce(store, first);
    expect(await acquireOn(store, new Lease([first, second], 'me', TTL))).toMatchObject({
      granted: false,
      holder: { id: held.id },
    });
    expect(await holdersOf(second)).toEqual([held.id]);
  });

  test('refuses more than 100 permits at the call, with the reason', async () => {
    const redlock = await newProcess();
    const acquiring = (permits: number) =>
      redlock.acquire([freshKey()], { ...once, kind: { mode: 'permits', permits } });
    expect(() => void acquiring(101)).toThrow(/at most 100 permits, not 101/);
    await (await acquiring(100)).release();
  });

  test('refuses a path that does not exist, and a user without rights, at the start', async () => {
    const missing = openStore({ connectionString: `${server.address}/none` });
    await expect(missing).rejects.toThrow(/does not have the path that follows the servers/);
    const owner = await openStore({
      connectionString: `${server.address}/mine`,
      auth: { username: 'app', password: 'secret' },
    }).catch(() => undefined);
    expect(owner).toBeUndefined();
    const client = await openClient();
    await client.ask(create('/mine', Buffer.alloc(0), { access: 'world' }), TTL);
    const connectionString = `${server.address}/mine`;
    await openStore({ connectionString, auth: { username: 'app', password: 'secret' } });
    const stranger = openStore({ connectionString, auth: { username: 'app', password: 'wrong' } });
    await expect(stranger).rejects.toThrow(/refuses access/);
    expect(await client.ask(getChildren('/mine'), TTL)).toEqual(['nestjs-redlock']);
  });

  test('changes no data of another program, and names its node', async () => {
    const key = freshKey();
    await acquireOn(witness, new Lease([key], 'me', TTL));
    const client = await openClient();
    const path = `/nestjs-redlock/locks/k${encodeURIComponent(`lock:${key}`)}`;
    await client.ask(setData(path, Buffer.from('theirs'), ANY_VERSION), TTL);
    const refused = (await newProcess()).acquire([key], once);
    await expect(refused).rejects.toThrow(/has data of another program; delete it/);
    await (await openStore()).sweep(-TTL);
    expect((await client.ask(getData(path), TTL)).data.toString()).toBe('theirs');
  });
});
