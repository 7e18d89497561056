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
  ['the remaining time of the key on the only node', [300], 1, 300],
  ['the time until the second of three nodes is free', [900, 100, 400], 2, 400],
  ['0 when two of three nodes are free', [0, 0, 700], 2, 0],
  ['Infinity when a quorum of nodes has the key without expiry', [0, Infinity, Infinity], 2, Infinity],
])('freeAfter returns %s', (_when, remaining, quorum, free) => {
  expect(freeAfter(remaining, quorum)).toBe(free);
});

/** All sets of `size` nodes. */
function quorumsOf(nodes: readonly string[], size = quorumOf(nodes.length)): string[][] {
  if (size === 0) return [[]];
  return nodes.flatMap((node, at) => quorumsOf(nodes.slice(at + 1), size - 1).map((rest) => [node, ...rest]));
}

/** True if old and new processes exclude each other, although their lists of nodes differ. */
function excludeEachOther(old: string, changed: string): boolean {
  const later = quorumsOf([...changed]);
  return quorumsOf([...old]).every((one) => later.every((other) => one.some((node) => other.includes(node))));
}

// docs/versions.md has this table.
test.each([
  ['abc', 'abcd'],
  ['abcd', 'abcde'],
  ['abcde', 'abcd'],
  ['abcdef', 'abcdefg'],
])('every quorum of the nodes %s shares a node with every quorum of the nodes %s', (old, changed) => {
  expect(excludeEachOther(old, changed)).toBe(true);
});

test.each([
  ['abc', 'abd'],
  ['abc', 'abcde'],
  ['a', 'abc'],
])('some quorum of the nodes %s shares no node with some quorum of the nodes %s', (old, changed) => {
  expect(excludeEachOther(old, changed)).toBe(false);
});
