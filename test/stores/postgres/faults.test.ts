import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import { LockLostError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import type { PostgresOptions } from '../../../lib/stores/postgres/postgres.options.js';
import { acquireOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { extendUntilConfirmed, renewed } from '../lock-lifetime.js';

// Locks while the server dies, hangs or is replaced, and while connections to it are cut.

const TTL = 60_000;

/** Milliseconds; far below the ttl, so that a test cannot pass because a lock expired instead of being released. */
const RELEASED_WITHIN = TTL / 2;

const once: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

let server: PostgresServer;
let proxy: TcpProxy;
let nextKey = 0;

beforeAll(async () => {
  server = await startPostgresServer();
  proxy = await startTcpProxy(server);
});
beforeEach(() => proxy.heal());

const freshKey = (): string => `key:${nextKey++}`;
const leaseOn = (key: string): Lease => new Lease([key], 'me', TTL);

interface Address {
  readonly host: string;
  readonly port: number;
}

async function openStore(
  to: Address = proxy,
  terms = newTerms(),
  options: PostgresOptions = {},
): Promise<PostgresStore> {
  const connectionString = `postgres://postgres@${to.host}:${to.port}/postgres`;
  const store = new PostgresStore({ connectionString, ...options }, terms);
  cleanUpAfterTests(() => store.close());
  await store.connect();
  return store;
}

async function newProcess(to?: Address, nodeTimeout: number = PATIENT.nodeTimeout): Promise<Redlock> {
  return redlockOver([await openStore(to)], { nodeTimeout });
}

async function isHeld(looker: Client, key: string): Promise<boolean> {
  const sql = `select from redlock.locks where key = $1 and state <> 'free' and ends > clock_timestamp()`;
  return (await looker.query(sql, [`lock:${key}`])).rowCount === 1;
}

describe('a store over a broken connection', () => {
  test('a store leaves no orphaned lock when the connection is cut while an acquire waits', async () => {
    const looker = await server.client();
    const key = freshKey();
    const redlock = await newProcess();
    await (await redlock.acquire([key], once)).release();
    // The acquire below waits for this row lock.
    await looker.query('begin');
    await looker.query('select from redlock.locks where key = $1 for update', [`lock:${key}`]);
    const acquiring = redlock.acquire([key], once);
    acquiring.catch(() => undefined);
    const waits = `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%turn%'`;
    const other = await server.client();
    await until(async () => (await other.query(waits)).rowCount === 1);
    proxy.cut();
    await expect(acquiring).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    // The server continues with the statement although its client is gone; the statement has a deadline.
    await looker.query('commit');
    // Wait until the statement has ended: other connections do not see its rows before that.
    const runs = `select from pg_stat_activity where state = 'active' and query like '%turn%' and pid <> pg_backend_pid()`;
    await until(async () => (await other.query(runs)).rowCount === 0);
    await until(async () => !(await isHeld(looker, key)), RELEASED_WITHIN);
    await delay(300);
    expect(await isHeld(looker, key)).toBe(false);
    await redlock.close();
  });

  test('a store leaves no orphaned lock when the server runs an acquire a second time, after its release (S27)', async () => {
    const looker = await server.client();
    const key = freshKey();
    // The name tells the connections of this store from those of other tests, which may still be ending.
    const store = await openStore(proxy, newTerms(), { applicationName: 'cut' });
    const redlock = redlockOver([store], { nodeTimeout: 3_000 });
    await (await redlock.acquire([key], once)).release();
    const backends = async (): Promise<number[]> => {
      const { rows } = await looker.query(
        `select pid from pg_stat_activity where application_name = 'cut' and query like '%turn(%'`,
      );
      return (rows as { pid: number }[]).map(({ pid }) => pid);
    };
    const stopped = await backends();
    for (const pid of stopped) process.kill(pid, 'SIGSTOP');
    const acquiring = redlock.acquire([key], once);
    await delay(50);
    proxy.cut();
    // The store has sent the request again, over the next connection.
    const lock = await acquiring;
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    // Another lock of the key: its id replaces the id by which the server would know the first request as a duplicate.
    await (await redlock.acquire([key], once)).release();
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
    await until(async () => (await backends()).every((pid) => !stopped.includes(pid)));
    await until(async () => !(await isHeld(looker, key)), RELEASED_WITHIN);
    await redlock.close();
  });

  test('a store rejects an acquire whose reply was lost, and releases its lock over the next connection', async () => {
    const looker = await server.client();
    const key = freshKey();
    const redlock = await newProcess(proxy, 3_000);
    proxy.dropReplies();
    const acquiring = redlock.acquire([key], once);
    acquiring.catch(() => undefined);
    await until(() => isHeld(looker, key));
    await expect(acquiring).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await proxy.heal();
    await until(async () => !(await isHeld(looker, key)), RELEASED_WITHIN);
    await redlock.close();
  });

  test('a store loses no lock when the connection is cut briefly: the next connection renews the lock', async () => {
    const redlock = await newProcess();
    const lock = await redlock.acquire([freshKey()], { ...waiting, ttl: 9_000 });
    for (let time = 0; time < 2; time++) {
      proxy.cut();
      await renewed([lock]);
    }
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await redlock.close();
  });

  test('a late release of a lapsed lease has no effect on the next holder (S7)', async () => {
    const store = await openStore();
    const direct = await openStore(server);
    const key = freshKey();
    const [late, next] = [new Lease([key], 'late', 200), leaseOn(key)];
    await acquireOn(store, late);
    proxy.holdRequests();
    const releasing = releaseOn(store, late);
    await until(async () => (await acquireOn(direct, next)).granted);
    await proxy.heal();
    await releasing;
    expect(await direct.read([key])).toMatchObject([{ holders: [{ id: next.id }] }]);
  });

  test('a store lets a waiter acquire when the server has closed the connection for messages', async () => {
    const redlock = await newProcess();
    const other = await newProcess(server);
    const key = freshKey();
    const held = await other.acquire([key], once);
    const next = redlock.acquire([key], waiting);
    const looker = await server.client();
    await until(
      async () =>
        (await looker.query('select from redlock.waiters where key = $1', [`lock:${key}`])).rowCount === 1,
    );
    await looker.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%' or query = 'select ''1'''`,
    );
    await held.release();
    const lock = await next;
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await Promise.all([redlock.close(), other.close()]);
  });
});

describe('a server', () => {
  test('PostgreSQL keeps every lock when it is killed and restarted, and continues with larger tokens', async () => {
    const mine = await startPostgresServer();
    const terms = newTerms();
    const store = await openStore(mine, terms);
    const redlock = redlockOver([store], PATIENT);
    const [kept, freed] = [freshKey(), freshKey()];
    const lock = await redlock.acquire([kept], once);
    const before = await redlock.acquire([freed], once);
    await before.release();
    await mine.restart();
    await until(() => store.available);
    expect(terms.events.slice(0, 2)).toEqual(['ready', 'lost']);
    await expect(redlock.acquire([kept], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
    const after = await redlock.acquire([freed], once);
    expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
    await extendUntilConfirmed(lock);
    await Promise.all([lock.release(), after.release()]);
    await redlock.close();
    await mine.stop();
  });

  test('PostgreSQL stores no lock for an acquire that came while the server hung, and held locks end in time', async () => {
    const mine = await startPostgresServer();
    const redlock = await newProcess(mine, 300);
    const key = freshKey();
    const ttl = 1_500;
    // A node has little time to answer for so short a ttl, so that one attempt may not be enough.
    const lock = await redlock.acquire([key], { ...waiting, ttl });
    const acquired = performance.now();
    const lost = new Promise<number>((resolve) => {
      lock.signal.addEventListener('abort', () => resolve(performance.now()));
    });
    mine.pause();
    // If the server stored this lock late, the lock would last for longer than the test waits.
    await expect(redlock.acquire([freshKey()], once)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    const told = await lost;
    expect(lock.loss).toBeInstanceOf(LockLostError);
    expect(lock.isHeld()).toBe(false);
    // The loss is reported by the end of the validity; the rest is the delay of a busy machine.
    expect(told - acquired).toBeLessThan(10 * ttl);
    await delay(ttl);
    mine.resume();
    const looker = await mine.client();
    await until(async () => {
      const { rowCount } = await looker.query(
        `select from redlock.locks where state <> 'free' and ends > clock_timestamp()`,
      );
      return rowCount === 0;
    }, RELEASED_WITHIN);
    const next = await redlock.acquire([key], waiting);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await next.release();
    await redlock.close();
    await mine.stop();
  });

  test('a PostgreSQL server is refused when it is a standby', async () => {
    const primary = await startPostgresServer();
    await primary.shutDown();
    const standby = await startPostgresServer({ copyOf: primary, standby: true });
    const store = new PostgresStore({ connectionString: standby.url }, newTerms());
    cleanUpAfterTests(() => store.close());
    await expect(store.connect()).rejects.toThrow(
      'cannot be used for locks: it is a standby; give the primary',
    );
    await store.close();
    await Promise.all([primary.stop(), standby.stop()]);
  });

  test('a PostgreSQL server is not used while it is read-only, and acquires fail with the reason', async () => {
    const mine = await startPostgresServer();
    const terms = newTerms();
    const store = await openStore(mine, terms);
    const looker = await mine.client();
    // From now on the connections can only read, like connections to a primary that became a standby.
    await looker.query(`alter role postgres set default_transaction_read_only = on`);
    await looker.query(`alter database postgres set default_transaction_read_only = on`);
    await looker.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'nestjs-redlock'`,
    );
    await until(() => terms.events.includes('lost'));
    await expect(acquireOn(store, leaseOn(freshKey()))).rejects.toThrow(/not connected/);
    await until(async () => {
      const error = await acquireOn(store, leaseOn(freshKey())).catch((thrown: Error) => thrown);
      return error instanceof Error && error.message.includes('default_transaction_read_only is on');
    });
    await looker.query('set default_transaction_read_only = off');
    await looker.query(`alter role postgres reset default_transaction_read_only`);
    await looker.query(`alter database postgres reset default_transaction_read_only`);
    await until(() => store.available);
    expect(await acquireOn(store, leaseOn(freshKey()))).toMatchObject({ granted: true });
    await store.close();
    await mine.stop();
  });
});
