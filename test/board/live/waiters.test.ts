import { expect, test } from '@jest/globals';
import type { KeyWaiter } from '../../../lib/core/ports.js';
import type { WaiterRow } from '../../../lib/board/live/messages.js';
import { waitersOf } from '../../../lib/board/live/waiters.js';

const call = (since: number, mode: WaiterRow['mode'] = 'exclusive'): WaiterRow => ({
  owner: 'api:1',
  since,
  mode,
  method: 'Orders.settle',
  own: true,
});

const standing = (process: string, since: number, mode: WaiterRow['mode'] = 'exclusive'): KeyWaiter => ({
  process,
  owner: `${process}:1`,
  number: 1,
  since,
  mode,
});

test('waitersOf() sorts waiting calls of this process and waiters of other processes by the start of the wait', () => {
  const rows = waitersOf([call(20), call(50)], [standing('b', 10), standing('c', 30)], 'a');
  expect(rows.map(({ owner, since }) => [owner, since])).toEqual([
    ['b:1', 10],
    ['api:1', 20],
    ['c:1', 30],
    ['api:1', 50],
  ]);
});

test('waitersOf() returns a waiting call of this process once, even if the queue also contains the call', () => {
  expect(waitersOf([call(20)], [standing('a', 21)], 'a')).toEqual([call(20)]);
});

test('waitersOf() marks a queued waiter of this process as `own` even if no call of the waiter is known', () => {
  const rows = waitersOf([call(20)], [standing('a', 10, 'shared'), standing('b', 30)], 'a');
  expect(rows).toEqual([
    { owner: 'a:1', since: 10, mode: 'shared', own: true },
    call(20),
    { owner: 'b:1', since: 30, mode: 'exclusive' },
  ]);
});

test('waitersOf() keeps the order of the queue if the clocks of the processes differ', () => {
  const rows = waitersOf([], [standing('b', 30), standing('c', 10)], undefined);
  expect(rows.map(({ owner }) => owner)).toEqual(['b:1', 'c:1']);
});
