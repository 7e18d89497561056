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

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgresServer();
});
afterAll(() => server.stop());

/** Each renewal of a lock takes the server so many milliseconds more. */
async function slowDown(milliseconds: number): Promise<void> {
  const looker = await server.client();
  await looker.query(`
    create or replace function redlock.slow_down() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(${milliseconds / 1_000});
      return new;
    end $$;
    create or replace trigger slow_down before update on redlock.locks for each row
      when (old.state = 'held' and new.state = 'held' and old.id = new.id) execute function redlock.slow_down();
  `);
}

// Of a node's time limit, which is for so many as are asked for at a time.
test.each([
  ['all', { count: 600, each: 1, nodeTimeout: 600 }],
  ['one batch', { count: 260, each: 3, nodeTimeout: 600 }],
])(
  'keeps all locks, and grants new ones, when the server needs longer than its time limit to renew %s',
  async (_what, { count, each, nodeTimeout }) => {
    const ttl = 4_000;
    const store = new PostgresStore({ connectionString: server.url }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    await slowDown(each);
    const redlock = redlockOver([store], { nodeTimeout });
    const terms: AcquireOptions = { ttl, renew: true, signals: [], retry: NO_RETRY };
    const locks: HeldLock[] = [];
    while (locks.length < count) {
      const some = Array.from({ length: 20 }, (_, index) =>
        redlock.acquire([`${count}:${locks.length + index}`], terms),
      );
      locks.push(...(await Promise.all(some)));
    }
    const [lost, failed]: [string[], Error[]] = [[], []];
    for (const lock of locks) lock.signal.addEventListener('abort', () => lost.push(...lock.keys));
    let taken = 0;
    for (const end = performance.now() + 1.3 * ttl; performance.now() < end; await delay(50)) {
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
  },
);
