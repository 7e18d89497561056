import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { renewed } from '../lock-lifetime.js';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgresServer();
});
afterAll(() => server.stop());

/** Makes the server take this time longer for each renewal of a lock. */
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

/** Milliseconds. A node has a fifth of the ttl to answer: long enough even if the machine stands still for a moment. */
const TTL = 15_000;

// The renewal of one lock takes `each` milliseconds, so that a batch takes longer than the time limit of a node.
test.each([
  ['all locks', { count: 600, each: 6 }],
  ['one batch of locks', { count: 260, each: 13 }],
])(
  'the store loses no lock when the renewal of %s takes longer than the time limit',
  async (_what, { count, each }) => {
    const store = new PostgresStore({ connectionString: server.url }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    await slowDown(each);
    const redlock = redlockOver([store], PATIENT);
    const terms: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
    const locks: HeldLock[] = [];
    while (locks.length < count) {
      const some = Array.from({ length: 20 }, (_, index) =>
        redlock.acquire([`${count}:${locks.length + index}`], terms),
      );
      locks.push(...(await Promise.all(some)));
    }
    const progress = { isOver: false };
    const renewing = renewed(locks).finally(() => (progress.isOver = true));
    renewing.catch(() => undefined);
    for (let taken = 0; !progress.isOver || taken < 10; taken++) {
      await (await redlock.acquire([`other:${taken}`], { ...terms, renew: false })).release();
      await delay(50);
    }
    await renewing;
    expect(locks.filter((lock) => !lock.isHeld())).toEqual([]);
    await Promise.all(locks.map((lock) => lock.release()));
    await redlock.close();
  },
);
