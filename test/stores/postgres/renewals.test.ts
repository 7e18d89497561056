import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import type { AcquireOptions } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';

const TTL = 4_000;
/** Milliseconds for an answer: much less than the server takes to renew all of them. */
const NODE_TIMEOUT = 700;
const COUNT = 1_000;

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgresServer();
});
afterAll(() => server.stop());

/** Each renewal of a lock takes the server a millisecond more. */
async function slowDown(): Promise<void> {
  const looker = await server.client();
  await looker.query(`
    create function redlock.slow_down() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(0.001);
      return new;
    end $$;
    create trigger slow_down before update on redlock.locks for each row
      when (old.state = 'held' and new.state = 'held' and old.id = new.id) execute function redlock.slow_down();
  `);
}

test('keeps 1,000 locks on a server that needs longer for all of them than one time limit, and acquires others meanwhile', async () => {
  const store = new PostgresStore({ connectionString: server.url }, newTerms());
  cleanUpAfterTests(() => store.close());
  await store.connect();
  await slowDown();
  const redlock = redlockOver([store], { nodeTimeout: NODE_TIMEOUT });
  const terms: AcquireOptions = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
  const locks: HeldLock[] = [];
  while (locks.length < COUNT) {
    const some = Array.from({ length: 250 }, (_, index) =>
      redlock.acquire([`held:${locks.length + index}`], terms),
    );
    locks.push(...(await Promise.all(some)));
  }
  const [lost, failed]: [string[], Error[]] = [[], []];
  for (const lock of locks) lock.signal.addEventListener('abort', () => lost.push(...lock.keys));
  let taken = 0;
  for (const end = performance.now() + 1.3 * TTL; performance.now() < end; await delay(50)) {
    try {
      await (await redlock.acquire([`other:${taken}`], { ...terms, renew: false })).release();
      taken++;
    } catch (error) {
      failed.push(error as Error);
    }
  }
  expect({ lost: lost.length, failed }).toEqual({ lost: 0, failed: [] });
  expect(taken).toBeGreaterThan(10);
  await Promise.all(locks.map((lock) => lock.release()));
  await redlock.close();
});
