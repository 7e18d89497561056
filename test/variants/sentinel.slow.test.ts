import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { LINGER_MS } from '../../lib/core/store-times.js';
import { type LockHandle, LockService, LockUnavailableError } from '../../lib/index.js';
import { countLocks } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { PATIENCE, type SentinelGroup, startSentinelGroup } from '../support/sentinel-group.js';
import { until } from '../support/until.js';
import { heldKeys } from '../support/core.js';
import { setFailOverAfter } from '../support/fail-over-after.js';

/** A ttl in milliseconds. A single attempt gives up after a fifth of it, and a busy machine never stalls for that long. */
const LONG = 60_000;
const once = { retry: false, ttl: LONG } as const;

interface SentinelOptions {
  readonly sentinels: { host: string; port: number }[];
  readonly name: string;
}

function optionsOf({ sentinels }: SentinelGroup): SentinelOptions {
  return { sentinels: sentinels.map(({ host, port }) => ({ host, port })), name: 'locks' };
}

/** Makes a client as an application makes it. */
function ioredis6(group: SentinelGroup): Redis6 {
  const client = new Redis6(optionsOf(group));
  // An open client keeps Jest from ending.
  cleanUpAfterTests(async () => client.disconnect());
  // An application listens to the errors of its client.
  client.on('error', () => undefined);
  return client;
}

describe('a master that a Sentinel watches', () => {
  let group: SentinelGroup;
  /** The first application has a connection of the library (ioredis 5), the second a passed-in client of ioredis 6. */
  let apps: INestApplication[];
  let five: LockService;
  let six: LockService;

  beforeAll(async () => {
    group = await startSentinelGroup();
    apps = await Promise.all([
      // This option of ioredis can end a client when its master dies, so the library does not hand it on.
      startApp({}, { nodes: { ...optionsOf(group), failoverDetector: true } }),
      startApp({}, { nodes: ioredis6(group) as unknown as Redis }),
    ]);
    [five, six] = apps.map((app) => app.get(LockService)) as [LockService, LockService];
  });
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.close()));
  });

  test('with Sentinel, only one of two clients (ioredis 5 and 6) holds a lock at a time', async () => {
    const lock = await five.acquire('key', { ttl: LONG });
    await expect(six.tryAcquire('key', { ttl: LONG })).resolves.toBeNull();
    await lock.release();
    await (await six.acquire('key', once)).release();
  });

  test('with Sentinel, applications get no lock after the master dies until the replica takes over with the replicated locks', async () => {
    const { master, replica } = group;
    const options = { ttl: PATIENCE };
    const held = await Promise.all([five.acquire('five', options), six.acquire('six', options)]);
    const looker = replica.client();
    await until(async () => (await countLocks(looker)) === 2);
    // The queue of waiters is replicated, too.
    const waiting = six.acquire('five', { ...options, retry: { timeout: 2 * PATIENCE } });
    await until(async () => (await looker.zcard('lock:{five}:q')) === 1);
    // The replica must not become the master before the refusals.
    await setFailOverAfter(group, 600_000);
    await master.kill();
    await expect(five.tryAcquire('other')).rejects.toBeInstanceOf(LockUnavailableError);
    await expect(six.tryAcquire('other')).rejects.toBeInstanceOf(LockUnavailableError);
    await setFailOverAfter(group, 500);

    for (const locks of [five, six]) {
      await until(() => succeeds(locks.acquire('other', once).then((lock) => lock.release())), PATIENCE);
    }
    await expect(six.tryAcquire('five', { ttl: LONG })).resolves.toBeNull();
    await expect(five.tryAcquire('six', { ttl: LONG })).resolves.toBeNull();
    for (const lock of held) {
      await lock.extend();
      expect(lock.state).toBe('held');
      await lock.release();
    }
    const waited = await waiting;
    expect(waited.fencingToken).toBeGreaterThan(held[0]!.fencingToken);
    await waited.release();
    await expect(countLocks(looker)).resolves.toBe(0);
    const next = await five.acquire('six', once);
    expect(next.fencingToken).toBeGreaterThan(held[1]!.fencingToken);
    await next.release();
  });
});

describe('a requested fail-over that leaves the old master a master', () => {
  const TTL = 12_000;

  let group: SentinelGroup;
  let oldMaster: Redis;
  let newMaster: Redis;
  beforeEach(async () => {
    group = await startSentinelGroup(3);
    [oldMaster, newMaster] = [group.master.client(), group.replica.client()];
  });

  /** Lets the Sentinels make the old master a replica, or prevents it. Sentinels do this ten seconds after a fail-over. */
  function mayBecomeReplica(may: boolean): Promise<unknown> {
    const sign = may ? '+' : '-';
    return oldMaster.call('ACL', 'SETUSER', 'default', `${sign}replicaof`, `${sign}slaveof`);
  }

  /** Requests a fail-over; resolves when every Sentinel knows the new master. */
  async function failOver(): Promise<void> {
    const watchers = group.sentinels.map((sentinel) => sentinel.client());
    // On a busy machine, a test may take longer than the ten seconds after which Sentinels make the old master a replica.
    await mayBecomeReplica(false);
    const begin = (): Promise<unknown> => watchers[0]!.call('SENTINEL', 'FAILOVER', 'locks');
    // A Sentinel refuses the fail-over while it has no recent message from the replica.
    await until(() => succeeds(begin()), PATIENCE);
    for (const watcher of watchers) {
      const master = (): Promise<unknown> => watcher.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'locks');
      await until(async () => String(await master()) === `127.0.0.1,${group.replica.port}`, PATIENCE);
    }
  }

  async function isStillMaster(): Promise<boolean> {
    return (await oldMaster.info('replication')).includes('role:master');
  }

  /** Starts an application. */
  async function locksOver(nodes: Redis6 | SentinelOptions = optionsOf(group)): Promise<LockService> {
    return (await startApp({}, { nodes: nodes as SentinelOptions })).get(LockService);
  }

  /** Acquires a lock; resolves when the replica has it, too. */
  async function hold(locks: LockService): Promise<LockHandle> {
    const lock = await locks.acquire('key', { ttl: TTL });
    await until(async () => (await countLocks(newMaster)) === 1);
    return lock;
  }

  test('after a fail-over that leaves two masters, a lock is renewed at the new master before the lock lapses there', async () => {
    const lock = await hold(await locksOver());
    await failOver();
    const others = await locksOver();
    let [left, granted, renewed] = [Infinity, false, false];
    await until(async () => {
      granted = (await others.tryAcquire('key', { ttl: LONG }).catch(() => null)) !== null;
      const before = left;
      left = (await newMaster.pttl('lock:{key}')) - LINGER_MS;
      renewed = left > before;
      return granted || renewed;
    }, PATIENCE);
    expect({ granted, renewed, held: lock.isHeld() }).toEqual({ granted: false, renewed: true, held: true });
    await expect(isStillMaster()).resolves.toBe(true);
    await lock.release();
  });

  test('after a fail-over that leaves two masters, a release at the new master wakes a waiter by a message', async () => {
    const lock = await hold(await locksOver());
    const waiting = (await locksOver()).acquire('key', { retry: { timeout: PATIENCE } });
    await until(async () => (await newMaster.zcard('lock:{key}:q')) === 1);
    await failOver();
    await until(
      async () => ((await newMaster.pubsub('CHANNELS', 'lock:wake:*')) as unknown[]).length === 1,
      PATIENCE,
    );
    await expect(isStillMaster()).resolves.toBe(true);
    await lock.release();
    await (await waiting).release();
  });

  test('a passed-in client that is still connected to a former master loses its lock before others acquire the lock, and gets no new lock until it reconnects', async () => {
    const locks = await locksOver(ioredis6(group));
    const lock = await hold(locks);
    await failOver();
    const others = await locksOver();
    await until(async () => succeeds(others.acquire('key', once)), PATIENCE);
    expect({ aborted: lock.signal.aborted, held: lock.isHeld() }).toEqual({ aborted: true, held: false });
    await expect(isStillMaster()).resolves.toBe(true);
    await expect(locks.tryAcquire('other', { ttl: LONG })).rejects.toThrow(
      'is still connected to a former master',
    );
    await mayBecomeReplica(true);
    await until(() => succeeds(locks.acquire('other', once)), PATIENCE);
    await expect(heldKeys(newMaster)).resolves.toContain('lock:{other}');
  });
});

function succeeds(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}
