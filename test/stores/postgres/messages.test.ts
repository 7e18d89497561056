import { afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import { Messages } from '../../../lib/stores/postgres/messages.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { until } from '../../support/until.js';

let server: PostgresServer;
let sender: Client;
let messages: Messages | undefined;

beforeAll(async () => {
  server = await startPostgresServer();
  sender = await server.client();
});

afterEach(() => messages?.close());

// The store sends a test message to itself. If the message does not arrive, waiters poll: a pooler in transaction mode
// delivers no messages.

test('a test message from the store to itself counts as delivered if it arrives while the thread is blocked', async () => {
  let undelivered = 0;
  messages = new Messages(
    { connectionString: server.url },
    {
      send: (channel, text) => {
        const sent = sender.query('select pg_notify($1, $2)', [channel, text]);
        // The thread is blocked after the statement was sent, so that its message stays unread. The server has enough
        // time to answer.
        void turn().then(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000));
        return sent;
      },
      undelivered: () => undelivered++,
      replaced: () => undefined,
    },
  );
  await messages.open();
  expect(undelivered).toBe(0);
  expect(messages.ready).toBe(true);
});

test('a test message from the store to itself that does not arrive is reported as undelivered', async () => {
  let undelivered = 0;
  messages = new Messages(
    { connectionString: server.url },
    { send: () => Promise.resolve(), undelivered: () => undelivered++, replaced: () => undefined },
  );
  await messages.open();
  expect(undelivered).toBe(1);
  expect(messages.ready).toBe(false);
});

test('an undelivered test message is sent again on a new connection, not at every check of the same connection', async () => {
  let sent = 0;
  messages = new Messages(
    { connectionString: server.url, application_name: 'listens' },
    { send: () => Promise.resolve(sent++), undelivered: () => undefined, replaced: () => undefined },
  );
  await messages.open();
  const pids = async (): Promise<string> =>
    JSON.stringify(
      (await sender.query("select pid from pg_stat_activity where application_name = 'listens'")).rows,
    );
  expect(sent).toBe(1);
  // The checks of a busy machine may get no answer in time. Then the connection is replaced, and the new one is tested.
  let before: string;
  let tests: number;
  do {
    before = await pids();
    tests = sent;
    await delay(3_500);
  } while ((await pids()) !== before);
  expect(sent).toBe(tests);
  await sender.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'listens'",
  );
  // The limit is below half a minute: after that time the store tests messages again on the same connection.
  await until(() => sent > tests, 20_000);
});

test('`close` ends the checks of the connection, also between the time of a check and the check itself', async () => {
  jest.useFakeTimers();
  try {
    messages = new Messages(
      { connectionString: 'postgres://127.0.0.1:1/none' },
      { send: () => Promise.resolve(), undelivered: () => undefined, replaced: () => undefined },
    );
    void messages.open();
    // The timer of the check fires, and lets Node read answers first.
    jest.advanceTimersToNextTimer();
    await messages.close();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(jest.getTimerCount()).toBe(0);
  } finally {
    jest.useRealTimers();
  }
});
