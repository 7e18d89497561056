import { expect, jest, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { LeaseNames } from '../../../lib/stores/redis/lease-names.js';
import { markKey, queueKey, recordKey } from '../../../lib/stores/redis/lock-key.js';

const requestOf = (...keys: string[]): { lease: Lease } => ({ lease: new Lease(keys, 'owner', 10_000) });

test('LeaseNames lists the Redis keys lease by lease, and within a lease kind by kind', () => {
  const names = new LeaseNames({ name: recordKey, queue: queueKey });
  expect(names.of([requestOf('a', 'b'), requestOf('c')], 'lock:')).toEqual([
    'lock:{a}',
    'lock:{b}',
    'lock:{a}:q',
    'lock:{b}:q',
    'lock:{c}',
    'lock:{c}:q',
  ]);
});

test('LeaseNames lists only the keys of the present request, whatever the request before it was', () => {
  const names = new LeaseNames({ mark: markKey });
  const [a, b, c] = [requestOf('a'), requestOf('b'), requestOf('c')];
  const named = (prefix: string, ...requests: (typeof a)[]): string => names.of(requests, prefix).join(' ');
  expect(named('lock:', a, b)).toBe('lock:{a}:w lock:{b}:w');
  expect(named('lock:', a, c)).toBe('lock:{a}:w lock:{c}:w');
  expect(named('lock:', c, a)).toBe('lock:{c}:w lock:{a}:w');
  expect(named('lock:', c)).toBe('lock:{c}:w');
  expect(named('lock:', c, b)).toBe('lock:{c}:w lock:{b}:w');
  expect(named('app:', c, b)).toBe('app:{c}:w app:{b}:w');
  expect(named('lock:')).toBe('');
});

test('LeaseNames builds the name of each Redis key only once for five nodes', () => {
  const nameOf = jest.fn(recordKey);
  const names = new LeaseNames({ name: nameOf });
  const leases = [requestOf('a'), requestOf('b')];
  for (let node = 0; node < 5; node++)
    names.of(
      leases.map(({ lease }) => ({ lease })),
      'lock:',
    );
  expect(nameOf).toHaveBeenCalledTimes(2);
});
