import { expect, test } from '@jest/globals';
import { freeAfter, quorumOf } from '../../lib/redlock/quorum.js';

test.each([
  [1, 1],
  [2, 2],
  [3, 2],
  [4, 3],
  [5, 3],
  [6, 4],
  [9, 5],
])('the quorum of %d nodes is %d (S1)', (nodes, quorum) => {
  expect(quorumOf(nodes)).toBe(quorum);
  expect(2 * quorum).toBeGreaterThan(nodes);
});

test.each([
  ['the holder ends', [300], 1, 300],
  ['the second of three is free', [900, 100, 400], 2, 400],
  ['nodes that are free already count', [0, 0, 700], 2, 0],
  ['a key without expiry never ends', [0, Infinity, Infinity], 2, Infinity],
])('a quorum can be free when %s', (_when, remaining, quorum, free) => {
  expect(freeAfter(remaining, quorum)).toBe(free);
});
