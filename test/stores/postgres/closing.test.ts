import { expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { acquireOn } from '../../support/ask-store.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';

/** Milliseconds that `close` may take on a busy machine. Its own limit is a second. */
const CLOSED_WITHIN_MS = 4_000;

/** The server is stopped: it answers nothing, and does not close its side of a connection. */
test.each([
  ['connected and idle', async (store: PostgresStore) => store.connect()],
  [
    'waits for an answer',
    async (store: PostgresStore, pause: () => void) => {
      await store.connect();
      pause();
      acquireOn(store, new Lease(['key'], 'me', 60_000)).catch(() => undefined);
    },
  ],
  [
    'is connecting',
    async (store: PostgresStore, pause: () => void) => {
      pause();
      store.connect().catch(() => undefined);
      await new Promise(setImmediate);
    },
  ],
])('`close` settles when the server is silent while the store %s', async (_when, prepare) => {
  const server = await startPostgresServer();
  const store = new PostgresStore({ connectionString: server.url }, newTerms());
  try {
    await prepare(store, () => server.pause());
    server.pause();
    const begun = performance.now();
    await store.close();
    expect(performance.now() - begun).toBeLessThan(CLOSED_WITHIN_MS);
  } finally {
    await server.stop();
  }
});
