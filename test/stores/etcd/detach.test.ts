import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { makePass, readPass } from '../../../lib/core/pass.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { type FakeGateway, startFakeGateway } from '../../support/etcd-gateway.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

const TTL = 60_000;
const LIMIT = 60_000;

const once: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };

/** The name of a holder, as the version before `detach` parses it. */
const FORMER_NAME = /\0h\0([epr])(\d{4})?([0-9a-f]{32})(k?)$/;

/** The value of a holder, as the version before `detach` writes and reads it. */
interface FormerValue {
  readonly o: string;
  readonly s: number;
  readonly n: number;
  readonly b: number;
  readonly r?: number;
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const textOf = (bytes = ''): string => Buffer.from(bytes, 'base64').toString();

(hasEtcd() ? describe : describe.skip)('a lock in etcd that goes to another process', () => {
  let server: EtcdServer;
  let gateway: FakeGateway;

  beforeAll(async () => {
    server = await startEtcd();
    gateway = await startFakeGateway(server);
  });

  async function openStore(url = server.url): Promise<EtcdStore> {
    const store = new EtcdStore({ endpoints: url }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return store;
  }

  async function newProcess(): Promise<Redlock> {
    return redlockOver([await openStore()], PATIENT);
  }

  const freshKey = (): string => `key:${randomUUID()}`;

  /** The names, values and etcd leases of the holders of a key. */
  async function storedOf(key: string) {
    const from = `nestjs-redlock/lock/lock:${key}\0h\0`;
    const { kvs = [] } = await server.call<{
      kvs?: { key: string; value: string; create_revision: string; lease: string }[];
    }>('kv/range', { key: base64(from), range_end: base64(`${from}\x7f`) });
    return kvs.map((each) => ({
      name: textOf(each.key),
      value: JSON.parse(textOf(each.value)) as FormerValue,
      created: Number(each.create_revision),
      lease: each.lease,
    }));
  }

  /** Makes a lease that stands for a detached lock. */
  function detachedLease(lease: Lease): Lease {
    const { id } = makePass({
      ...{ keys: lease.keys, kind: lease.kind, slots: lease.slots, fencingToken: 1, ttl: TTL, minHold: 0 },
      ...{
        maxHold: undefined,
        tick: undefined,
        lock: undefined,
        owner: 'me',
        at: 0,
        keyPrefix: '',
        nodes: 1,
      },
      replaced: [],
    });
    return new Lease(lease.keys, 'me (detached)', TTL, undefined, lease.kind, undefined, id);
  }

  function exchange(store: EtcdStore, lease: Lease, ...replaces: readonly Lease[]): Promise<boolean> {
    const ids = replaces.map(({ id }) => id);
    return store.exchange({ lease, replaces: ids, since: Date.now(), limit: LIMIT, guard: 0 });
  }

  /** Exchanges a lease in a store whose exchanges get no answer from then on, until the gateway intercepts no more. */
  async function exchangedWithoutAnswer() {
    const store = await openStore(`http://${gateway.host}:${gateway.port}`);
    const lease = new Lease([freshKey()], 'me', TTL);
    await acquireOn(store, lease, { renewed: true });
    const detached = detachedLease(lease);
    gateway.intercept = async ({ path, body, pass }) => {
      if (path !== 'kv/txn' || !body.includes('request_delete_range')) return undefined;
      await pass();
      return '{}';
    };
    await expect(exchange(store, detached, lease)).rejects.toThrow('a body that etcd does not send');
    return { store, lease, detached };
  }

  test('keeps its token, and does not expire with the other locks of the first process', async () => {
    const [api, worker] = [await newProcess(), await newProcess()];
    const [key, other] = [freshKey(), freshKey()];
    const [lock, neighbour] = [await api.acquire([key], once), await api.acquire([other], once)];
    const pass = await lock.detach();
    const [[detached], [staying]] = [await storedOf(key), await storedOf(other)];
    expect(detached!.lease).not.toBe(staying!.lease);
    const attached = await worker.attach(readPass(pass), once);
    expect(attached.fencingToken).toBe(lock.fencingToken);
    await attached.extend();
    await expect(api.acquire([key], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
    await attached.release();
    expect(await storedOf(key)).toEqual([]);
    expect((await api.acquire([key], once)).fencingToken).toBeGreaterThan(lock.fencingToken);
    await neighbour.release();
  });

  test('a process of the version before sees it as held, with its token', async () => {
    const api = await newProcess();
    const key = freshKey();
    const lock = await api.acquire([key], once);
    const [before] = await storedOf(key);
    await lock.detach();
    const { name, value, created } = (await storedOf(key))[0]!;
    expect(name).toMatch(FORMER_NAME);
    expect(value.o).toBe('me (detached)');
    expect(created).toBeGreaterThan(before!.created);
    // The former version counts from `r`, and from the revision of the name only without `r`.
    expect(value.b + (value.r ?? created)).toBe(lock.fencingToken);
  });

  test('a lock that the version before has stored keeps its token', async () => {
    const [store, other] = [await openStore(), await openStore()];
    const lease = new Lease([freshKey()], 'me', TTL);
    const reply = await acquireOn(store, lease);
    const { value } = (await storedOf(lease.keys[0]!))[0]!;
    expect(Object.keys(value)).toEqual(['o', 's', 'n', 'b']);
    const [next, last] = [detachedLease(lease), new Lease(lease.keys, 'other', TTL)];
    expect(await exchange(store, next, lease)).toBe(true);
    expect(await exchange(other, last, next)).toBe(true);
    const [state] = await other.read(lease.keys);
    expect(state).toMatchObject({
      holders: [{ id: last.id, fencingToken: (reply as { token: number }).token }],
    });
    await releaseOn(other, last);
  });

  test('an exchange that comes after the lock was given back changes nothing (S16)', async () => {
    const store = await openStore(`http://${gateway.host}:${gateway.port}`);
    const lease = new Lease([freshKey(), freshKey()], 'me', TTL);
    await acquireOn(store, lease, { renewed: true });
    const detached = detachedLease(lease);
    let late: string | undefined;
    gateway.intercept = ({ path, body }) => {
      if (late !== undefined || path !== 'kv/txn' || !body.includes('request_delete_range')) return undefined;
      late = body;
      // The store takes this for no answer of etcd, so the outcome is unknown.
      return '{}';
    };
    await expect(exchange(store, detached, lease)).rejects.toThrow('a body that etcd does not send');
    detached.ended = true;
    expect(await exchange(store, lease, detached)).toBe(true);
    const { succeeded = false } = await server.call<{ succeeded?: boolean }>('kv/txn', JSON.parse(late!));
    expect(succeeded).toBe(false);
    expect(await extendOn(store, lease, TTL)).toBe(true);
    await releaseOn(store, lease);
    for (const key of lease.keys) expect(await storedOf(key)).toEqual([]);
  });

  test('a lock is given back, extended and released although the answers were lost', async () => {
    const { store, lease, detached } = await exchangedWithoutAnswer();
    detached.ended = true;
    await expect(exchange(store, lease, detached)).rejects.toThrow('a body that etcd does not send');
    gateway.intercept = undefined;
    expect(await extendOn(store, lease, TTL)).toBe(true);
    await releaseOn(store, lease);
    expect(await storedOf(lease.keys[0]!)).toEqual([]);
  });

  test('the late answer of an exchange does not end the etcd lease of a later extension', async () => {
    const { store, lease, detached } = await exchangedWithoutAnswer();
    detached.ended = true;
    let answer!: () => void;
    const isAnswered = new Promise<void>((resolve) => (answer = resolve));
    gateway.intercept = async ({ path, body, pass }) => {
      if (path !== 'kv/txn' || !body.includes('request_delete_range')) return undefined;
      const reply = await pass();
      await isAnswered;
      return reply;
    };
    const givenBack = exchange(store, lease, detached);
    const [key] = lease.keys as [string];
    await until(async () => (await storedOf(key)).some(({ name }) => name.endsWith(lease.id)));
    const extended = extendOn(store, lease, 2 * TTL);
    // An extension that does not wait for the answer is made by then.
    await Promise.race([extended, delay(500)]);
    answer();
    expect(await Promise.all([givenBack, extended])).toEqual([true, true]);
    await delay(200);
    expect(await storedOf(key)).toHaveLength(1);
    await releaseOn(store, lease);
    expect(await storedOf(key)).toEqual([]);
  });

  test('the shared etcd lease of a process ends with its store, although one of its locks was detached', async () => {
    const store = await openStore();
    const lease = new Lease([freshKey()], 'me', TTL);
    const granted = async (): Promise<unknown[]> => {
      const { leases = [] } = await server.call<{ leases?: { ID: string }[] }>('lease/leases', {});
      return leases.map(({ ID }) => ID);
    };
    await acquireOn(store, lease, { renewed: true });
    const [{ lease: shared } = { lease: '' }] = await storedOf(lease.keys[0]!);
    expect(await granted()).toContain(shared);
    expect(await exchange(store, detachedLease(lease), lease)).toBe(true);
    await store.close();
    expect(await granted()).not.toContain(shared);
    expect(await storedOf(lease.keys[0]!)).toHaveLength(1);
  });

  test('a lease of an exchange whose answer was lost is released', async () => {
    const { store, lease, detached } = await exchangedWithoutAnswer();
    gateway.intercept = undefined;
    detached.ended = true;
    await releaseOn(store, detached);
    expect(await storedOf(lease.keys[0]!)).toEqual([]);
  });
});
