import { setImmediate as turn } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { RecentKeys } from '../../../lib/core/recent-keys.js';
import type { Connection } from '../../../lib/stores/postgres/connection.js';
import { Turns } from '../../../lib/stores/postgres/turns.js';

// A process in which the listener of a renewal throws. Prints the answers to later renewals, and the unhandled errors.
// This program has its own process, because an unhandled error in the process of Jest would make the test fail.

const errors: string[] = [];
process.on('unhandledRejection', (error) => errors.push((error as Error).message));

/** The requests of each statement, which is answered in the next turn of the event loop. */
const statements: string[] = [];
const connection = {
  async run(_text: string, [, asked = '']: readonly string[]): Promise<string> {
    statements.push(asked);
    const { extensions = [] } = JSON.parse(asked) as { extensions?: readonly object[] };
    await turn();
    return JSON.stringify({
      at: Date.now(),
      released: [],
      acquired: [],
      extended: extensions.map(() => true),
    });
  },
} as unknown as Connection;

const waiters = new RecentKeys();
const turns = new Turns({ connection, keyPrefix: 'lock:', schema: 'redlock', channel: 'c', waiters });

const leaseOn = (key: string): Lease => new Lease([key], 'me', 60_000);

function extend(key: string): Promise<boolean | Error> {
  return new Promise((resolve) => turns.extend([leaseOn(key)], 60_000, (_, reply) => resolve(reply)));
}

turns.extend([leaseOn('a')], 60_000, () => {
  throw new Error('broken');
});
while (statements.length === 0) await turn();
const during = await extend('b');
const later = await extend('c');
console.log(JSON.stringify({ during, later, errors }));
turns.close();
