import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client } from 'pg';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { inspectionContract } from '../../contract/inspection-contract.js';
import { lockContract } from '../../contract/lock-contract.js';
import { redlockOver } from '../../support/core.js';
import { NO_PGBOUNCER, PGBOUNCER, startPgBouncer } from '../../support/pgbouncer.js';
import { PATIENT } from '../../support/patience.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

if (PGBOUNCER === undefined) {
  test(`${NO_PGBOUNCER}`, () => expect(PGBOUNCER).toBeUndefined());
} else {
  throughPgBouncer();
}

function throughPgBouncer(): void {
  const backend = async () => {
    const server = await startPostgresServer();
    const url = await startPgBouncer(server);
    const looker = await server.client();
    return {
      async nodes() {
        const store = new PostgresStore({ connectionString: url }, newTerms());
        await store.connect();
        return [store];
      },
      async countKeys() {
        const { rows } = await looker.query(
          `select count(*) from redlock.locks where state <> 'free' and ends > clock_timestamp()`,
        );
        return Number((rows as { count: string }[])[0]?.count);
      },
      stop: () => server.stop(),
    };
  };
  lockContract('PostgreSQL behind PgBouncer in transaction mode', backend);
  inspectionContract('PostgreSQL behind PgBouncer in transaction mode', backend, { queues: false });

  describe('PgBouncer in transaction mode', () => {
    const waiting: AcquireTerms = {
      ttl: 60_000,
      renew: true,
      signals: [],
      retry: { timeout: 50_000, attempts: Infinity, delay: 40_000, jitter: 1 },
    };
    let server: PostgresServer;
    let url: string;

    beforeAll(async () => {
      server = await startPostgresServer();
      url = await startPgBouncer(server);
    });

    async function open(options: { readonly listenConnectionString?: string } = {}): Promise<{
      readonly redlock: Redlock;
      readonly store: PostgresStore;
      readonly warnings: readonly string[];
    }> {
      const terms = newTerms();
      const store = new PostgresStore({ connectionString: url, ...options }, terms);
      await store.connect();
      return { redlock: redlockOver([store], PATIENT), store, warnings: terms.warnings };
    }

    test('PgBouncer delivers no messages: the store logs this at start-up, and waiters poll', async () => {
      const { redlock, store, warnings } = await open();
      expect(warnings).toEqual([
        expect.stringMatching(
          /no messages arrive, as behind a pooler in transaction mode.*listenConnectionString/,
        ),
      ]);
      expect(store.subscribed).toBe(false);
      const held = await redlock.acquire(['polled'], waiting);
      const polling = { ...waiting, retry: { ...waiting.retry, delay: 20 } };
      const next = redlock.acquire(['polled'], polling);
      await held.release();
      await (await next).release();
      await redlock.close();
    });

    test('messages wake waiters behind PgBouncer when `listenConnectionString` bypasses PgBouncer', async () => {
      const [a, b] = await Promise.all([
        open({ listenConnectionString: server.url }),
        open({ listenConnectionString: server.url }),
      ]);
      expect([...a.warnings, ...b.warnings]).toEqual([]);
      const held = await a.redlock.acquire(['told'], waiting);
      const next = b.redlock.acquire(['told'], waiting);
      const looker = await server.client();
      await until(async () => {
        const inLine = await looker.query("select from redlock.waiters where key = 'lock:told'");
        return inLine.rowCount === 1;
      });
      const released = performance.now();
      await held.release();
      await (await next).release();
      // Without a message the waiter would have asked again after 5 seconds at the earliest.
      expect(performance.now() - released).toBeLessThan(4_000);
      await Promise.all([a.redlock.close(), b.redlock.close()]);
    });

    // This is the reason why locks are rows and not advisory locks; see docs/postgres.md.
    test('PgBouncer lets two clients hold the same session advisory lock, which outlives them', async () => {
      const [a, b] = await Promise.all([client(), client()]);
      const ask = async (who: Client, sql: string): Promise<unknown> =>
        Object.values(((await who.query(sql)).rows as object[])[0] ?? {})[0];
      expect(await ask(a, 'select pg_try_advisory_lock(42)')).toBe(true);
      // The next transaction gets the same server connection, which holds the lock already.
      expect(await ask(b, 'select pg_try_advisory_lock(42)')).toBe(true);
      await Promise.all([a.end(), b.end()]);
      const direct = await server.client();
      expect(await ask(direct, 'select pg_try_advisory_lock(42)')).toBe(false);
    });

    test('through PgBouncer, locks that are table rows are exclusive, and end with their ttl', async () => {
      const [a, b] = await Promise.all([open(), open()]);
      const often = { ...waiting, retry: { ...waiting.retry, delay: 10 } };
      const lock = await a.redlock.acquire(['row'], { ...often, ttl: 3_000, renew: false });
      await expect(b.redlock.acquire(['row'], { ...waiting, retry: NO_RETRY })).rejects.toMatchObject({
        code: 'LOCK_HELD',
      });
      await until(() => !lock.isHeld());
      await (await b.redlock.acquire(['row'], often)).release();
      await Promise.all([a.redlock.close(), b.redlock.close()]);
    });

    async function client(): Promise<Client> {
      const it = new Client({ connectionString: url });
      await it.connect();
      return it;
    }
  });
}
