import { expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { RecentKeys } from '../../../lib/core/recent-keys.js';
import type { BatchRequest } from '../../../lib/stores/database/request.js';
import { Batches } from '../../../lib/stores/database/batches.js';
import { until } from '../../support/until.js';

/** Numbers of the leases in each statement, and of the characters of their keys. */
interface Sent {
  readonly leases: number;
  readonly characters: number;
}

/** Sends requests for leases through `Batches`, with a database that answers every statement. */
async function sentFor(kind: keyof BatchRequest, leases: readonly Lease[]): Promise<Sent[]> {
  const sent: Sent[] = [];
  const turns = new Batches({
    keyPrefix: 'lock:',
    channel: 'here',
    waiters: new RecentKeys(),
    blocked: () => Promise.resolve(new Set<string>()),
    run: async (keys, { releases = [], extensions = [], acquisitions = [] }) => {
      sent.push({
        leases: { releases, extensions, acquisitions }[kind].length,
        characters: keys.join('').length,
      });
      return {
        at: Date.now(),
        released: releases.map(() => false),
        extended: extensions.map(() => true),
        acquired: acquisitions.map(() => ({ token: 1 })),
      };
    },
  });
  let answers = 0;
  const tell = (): void => void answers++;
  if (kind === 'releases')
    turns.release(
      leases.map((lease) => ({ lease, pause: 0 })),
      tell,
    );
  else if (kind === 'extensions') turns.extend(leases, 60_000, tell);
  else {
    const terms = { since: 0, limit: 10_000, guard: 0, proposal: 0, position: undefined };
    turns.acquire(
      leases.map((lease) => ({ lease, ...terms })),
      false,
      tell,
    );
  }
  await until(() => answers === leases.length);
  turns.close();
  return sent;
}

const leasesWith = (count: number, keys: number, length: number): Lease[] =>
  Array.from({ length: count }, (_, lease) => {
    const names = Array.from({ length: keys }, (__, key) => `${lease}:${key}:`.padEnd(length, 'x'));
    return new Lease(names, 'me', 60_000);
  });

test.each(['releases', 'extensions', 'acquisitions'] as const)(
  '%s with long keys go in several statements, below the max_allowed_packet of MySQL',
  async (kind) => {
    // 500 leases, the most of a statement, would have 5 MB of keys.
    const sent = await sentFor(kind, leasesWith(500, 5, 2_000));
    expect(sent.reduce((sum, { leases }) => sum + leases, 0)).toBe(500);
    for (const { characters } of sent) expect(characters).toBeLessThan(260_000);
  },
);

test('a lease whose keys are longer than the limit goes in a statement of its own', async () => {
  const sent = await sentFor('acquisitions', leasesWith(3, 200, 2_000));
  expect(sent.map(({ leases }) => leases)).toEqual([1, 1, 1]);
});

test('leases with short keys go in statements of 500', async () => {
  const sent = await sentFor('acquisitions', leasesWith(1_200, 1, 20));
  expect(sent.map(({ leases }) => leases)).toEqual([500, 500, 200]);
});
