import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Connection } from '../../../lib/stores/database/connection.js';
import type { DatabaseClient, DatabaseDriver } from '../../../lib/stores/database/database-client.js';
import { prepare } from '../../../lib/stores/mysql/preparation.js';
import type { OwnClient } from '../../../lib/stores/mysql/own-client.js';
import { SchemaNames, schemaStatements } from '../../../lib/stores/mysql/schema.js';
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

describe('the first start of a store in MySQL, which creates tables and procedures', () => {
  /** Opens a connection to a server that takes this long for each statement, in milliseconds. */
  async function open(took: (text: string) => number): Promise<{ asked: string[]; outcome: unknown }> {
    const asked: string[] = [];
    const slow = {
      ...driver.newClient(),
      connect: () => Promise.resolve(),
      async run(text: string) {
        asked.push(text);
        await new Promise((resolve) => setTimeout(resolve, took(text)));
        return text.startsWith('show variables') ? '{"version":"10.11.6-MariaDB"}' : undefined;
      },
    };
    const connection = new Connection(
      { ...driver, newClient: () => slow },
      {
        prepare: async (client) =>
          void (await prepare(client as OwnClient, new SchemaNames(), true, () => undefined)),
        ready: () => undefined,
        lost: () => undefined,
        replaced: () => undefined,
      },
    );
    const opened = connection.open().then(
      () => 'ready',
      ({ message }: Error) => message,
    );
    await jest.advanceTimersByTimeAsync(200_000);
    const outcome = await opened;
    await connection.close();
    return { asked, outcome };
  }

  test('it succeeds on a server that answers each statement, however long all of them take', async () => {
    const { asked, outcome } = await open(() => 3_000);
    expect(outcome).toBe('ready');
    expect(asked).toEqual(expect.arrayContaining(schemaStatements(new SchemaNames())));
  });

  test('it fails on a server that does not answer one of the statements', async () => {
    const { outcome } = await open((text) => (text.startsWith('create procedure') ? 1e9 : 0));
    expect(outcome).toBe('no answer within 5000 ms');
  });
});
