import { setImmediate as turn } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import { RecentKeys } from '../../../lib/core/recent-keys.js';
import { Batches } from '../../../lib/stores/database/batches.js';

// A process in which the listener of a renewal throws. Prints the answers to later renewals, and the unhandled errors.
// This program has its own process, because an unhandled error in the process of Jest would make the test fail.

const errors: string[] = [];
process.on('unhandledRejection', (error) => errors.push((error as Error).message));

/** The requests of each statement, which is answered in the next turn of the event loop. */
const statements: object[] = [];
const batches = new Batches({
  keyPrefix: 'lock:',
  channel: 'c',
  waiters: new RecentKeys(),
  blocked: () => Promise.resolve(new Set<string>()),
  async run(_keys, asked) {
    statements.push(asked);
    await turn();
    const extended = (asked.extensions ?? []).map(() => true);
    return { at: Date.now(), released: [], acquired: [], extended };
  },
});

const leaseOn = (key: string): Lease => new Lease([key], 'me', 60_000);

function extend(key: string): Promise<boolean | Error> {
  return new Promise((resolve) => batches.extend([leaseOn(key)], 60_000, (_, reply) => resolve(reply)));
}

batches.extend([leaseOn('a')], 60_000, () => {
  throw new Error('broken');
});
while (statements.length === 0) await turn();
const during = await extend('b');
const later = await extend('c');
console.log(JSON.stringify({ during, later, errors }));
batches.close();
