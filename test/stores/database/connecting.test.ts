import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Connection } from '../../../lib/stores/database/connection.js';
import type { DatabaseClient, DatabaseDriver } from '../../../lib/stores/database/database-client.js';
import { SideConnection } from '../../../lib/stores/database/side-connection.js';

// A client that is never connected: a password service without an answer, or a proxy that hangs after its greeting.

let ended: number;

const driver: DatabaseDriver<DatabaseClient> = {
  newClient: () => ({
    connect: () => new Promise(() => undefined),
    run: () => Promise.resolve(undefined),
    onLost: () => undefined,
    end: async () => void ended++,
  }),
  test: '',
  replaces: () => false,
  withAdvice: (error) => error,
};

beforeEach(() => {
  ended = 0;
  jest.useFakeTimers();
});

afterEach(() => void jest.useRealTimers());

test('a connection that is never opened fails after ten seconds, and the next attempt follows', async () => {
  let losses = 0;
  const connection = new Connection(driver, {
    prepare: () => Promise.resolve(),
    ready: () => undefined,
    lost: () => losses++,
    replaced: () => undefined,
  });
  const opened = connection.open().catch((error: Error) => error.message);
  await jest.advanceTimersByTimeAsync(10_100);
  await expect(opened).resolves.toBe('no answer within 10000 ms');
  expect({ ended, losses }).toEqual({ ended: 1, losses: 1 });
  await jest.advanceTimersByTimeAsync(11_000);
  expect({ ended, losses }).toEqual({ ended: 2, losses: 2 });
  await connection.close();
});

test('a second connection that is never opened fails after ten seconds', async () => {
  const side = new SideConnection(driver);
  const answer = side.run('list', []).catch((error: Error) => error.message);
  await jest.advanceTimersByTimeAsync(10_100);
  await expect(answer).resolves.toBe('no answer within 10000 ms');
  expect(ended).toBe(1);
  await side.close();
});
