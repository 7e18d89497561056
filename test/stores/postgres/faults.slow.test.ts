import { describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import type { StoreTerms } from '../../../lib/core/store-factory.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import type { PostgresOptions } from '../../../lib/stores/postgres/postgres.options.js';
import { acquireOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';
import {
  type Address,
  FaultContract,
  freshKey,
  leaseOn,
  once,
  RELEASED_WITHIN,
  waiting,
} from '../faults-contract.js';

// Locks while the server dies, hangs or is replaced, and while connections to it are cut.

const faults = new FaultContract('PostgreSQL', {
  start: startPostgresServer,
  open: openStore,
  isHeld: async (key, on) => isHeld(await on.client(), key),
});

async function openStore(
  to: Address,
  terms: StoreTerms = newTerms(),
  options: PostgresOptions = {},
): Promise<PostgresStore> {
  const connectionString = `postgres://postgres@${to.host}:${to.port}/postgres`;
  const store = new PostgresStore({ connectionString, ...options }, terms);
  cleanUpAfterTests(() => store.close());
  await store.connect();
  return store;
}

async function isHeld(looker: Client, key: string): Promise<boolean> {
  const sql = `select from redlock.locks where key = $1 and state <> 'free' and ends > clock_timestamp()`;
  return (await looker.query(sql, [`lock:${key}`])).rowCount === 1;
}

describe('a store over a broken connection', () => {
  test('a store leaves no orphaned lock when the connection is cut while an acquire waits', async () => {
    const looker = await faults.server.client();
    const key = freshKey();
    const redlock = await faults.newProcess();
    await (await redlock.acquire([key], once)).release();
    // The acquire below waits for this row lock.
    await looker.query('begin');
    await looker.query('select from redlock.locks where key = $1 for update', [`lock:${key}`]);
    const acquiring = redlock.acquire([key], once);
    acquiring.catch(() => undefined);
    const waits = `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%turn%'`;
    const other = await faults.server.client();
    await until(async () => (await other.query(waits)).rowCount === 1);
    faults.proxy.cut();
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
    const looker = await faults.server.client();
    const key = freshKey();
    // The name tells the connections of this store from those of other tests, which may still be ending.
    const store = await openStore(faults.proxy, newTerms(), { applicationName: 'cut' });
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
    faults.proxy.cut();
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

  faults.losesReply();
  faults.renewsAfterCut();
  faults.releasesLate();

  test('a store lets a waiter acquire when the server has closed the connection for messages', async () => {
    const redlock = await faults.newProcess();
    const other = await faults.newProcess(faults.server);
    const key = freshKey();
    const held = await other.acquire([key], once);
    const next = redlock.acquire([key], waiting);
    const looker = await faults.server.client();
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
  faults.restarts();
  faults.hangs();

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
