import { expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { acquireOn } from '../../support/ask-store.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';

/** Milliseconds that `close` may take on a busy machine. Its own limit is a second; a silent connection ends after minutes. */
const CLOSED_WITHIN_MS = 30_000;

/** The outcome of the work that waits for the server. */
let outcome: Promise<unknown>;

function waitFor(work: Promise<unknown>): Promise<void> {
  outcome = work.catch((error: unknown) => error);
  return new Promise(setImmediate);
}

/** The server is stopped: it answers nothing, and does not close its side of a connection. */
test.each([
  ['connected and idle', async (store: PostgresStore) => store.connect()],
  [
    'waits for an answer',
    async (store: PostgresStore, pause: () => void) => {
      await store.connect();
      pause();
      await waitFor(acquireOn(store, new Lease(['key'], 'me', 60_000)));
    },
  ],
  [
    'is connecting',
    async (store: PostgresStore, pause: () => void) => {
      pause();
      await waitFor(store.connect());
    },
  ],
  [
    'opens its connection for lists',
    async (store: PostgresStore, pause: () => void) => {
      await store.connect();
      pause();
      await waitFor(store.scan('').next());
    },
  ],
])(
  '`close` settles, and ends all work, when the server is silent while the store %s',
  async (_when, prepare) => {
    outcome = Promise.resolve(new Error('no work'));
    const server = await startPostgresServer();
    const store = new PostgresStore({ connectionString: server.url }, newTerms());
    try {
      await prepare(store, () => server.pause());
      server.pause();
      const begun = performance.now();
      await store.close();
      expect(performance.now() - begun).toBeLessThan(CLOSED_WITHIN_MS);
      await expect(outcome).resolves.toBeInstanceOf(Error);
    } finally {
      await server.stop();
    }
  },
);
