import { expect, test } from '@jest/globals';
import { holdIn, nameOfHold } from '../../lib/core/hold-name.js';

test('the name of a `hold` tells who holds the lock, until when, and why', () => {
  const hold = { by: 'ann@ops-1:4711', until: '2026-11-27T20:47:27Z', reason: 'wait until 9: migration\n42' };
  expect(holdIn(nameOfHold(hold))).toEqual(hold);
});

test.each([
  'ops-1:4711',
  'job until noon: x',
  'a until 2026-11-27T20:47:27Z',
  ' until 2026-11-27T20:47:27Z: x',
])('the name %j is that of another owner', (name) => {
  expect(holdIn(name)).toBeUndefined();
});
