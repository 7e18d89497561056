import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { setImmediate as turn } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { RecentWaiters } from '../../../lib/core/recent-waiters.js';
import type { Connection } from '../../../lib/stores/postgres/connection.js';
import { Turns } from '../../../lib/stores/postgres/turns.js';

/** The requests of each statement; each is answered in the next turn of the event loop. */
const statements: { readonly extensions?: readonly object[] }[] = [];
const connection = {
  async run(_text: string, [, asked]: readonly string[]): Promise<string> {
    const statement = JSON.parse(asked ?? '') as (typeof statements)[number];
    statements.push(statement);
    await turn();
    return JSON.stringify({
      at: Date.now(),
      released: [],
      acquired: [],
      extended: statement.extensions?.map(() => true),
    });
  },
} as unknown as Connection;

const errors: unknown[] = [];
const onUnhandled = (error: unknown): void => void errors.push(error);
let turns: Turns;

beforeEach(() => {
  statements.length = errors.length = 0;
  process.on('unhandledRejection', onUnhandled);
  const waiters = new RecentWaiters();
  turns = new Turns({ connection, keyPrefix: 'lock:', schema: 'redlock', channel: 'c', waiters });
});
afterEach(() => {
  process.off('unhandledRejection', onUnhandled);
  turns.close();
});

const leaseOn = (key: string): Lease => new Lease([key], 'me', 60_000);

function extend(key: string): Promise<boolean | Error> {
  return new Promise((resolve) => turns.extend([leaseOn(key)], 60_000, (_, reply) => resolve(reply)));
}

test('sends what was asked meanwhile, and later requests, after a listener threw', async () => {
  const broken = new Error('broken');
  turns.extend([leaseOn('a')], 60_000, () => {
    throw broken;
  });
  // The first statement is on its way.
  while (statements.length === 0) await turn();
  await expect(extend('b')).resolves.toBe(true);
  await expect(extend('c')).resolves.toBe(true);
  expect(statements).toHaveLength(3);
  expect(errors).toEqual([broken]);
});
