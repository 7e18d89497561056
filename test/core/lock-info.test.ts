import { describe, expect, test } from '@jest/globals';
import { infoOf, type LockVote, voteOf } from '../../lib/core/lock-info.js';
import type { LockStore } from '../../lib/core/ports.js';

const SINCE = new Date(1_700_000_000_000);

function has(id: string, remaining = 1_000, fencingToken = 7): LockVote {
  const holder = {
    id,
    owner: `owner of ${id}`,
    since: SINCE,
    remaining,
    fencingToken,
    mode: 'exclusive' as const,
  };
  return { node: 'n', vote: 'held', ...holder, holders: [holder] };
}
const free: LockVote = { node: 'n', vote: 'free' };
const away: LockVote = { node: 'n', vote: 'error', error: new Error('away') };

describe('infoOf: is the key held?', () => {
  test.each<[string, LockVote[], number, string | undefined]>([
    ['held when the only node stores it', [has('x')], 1, 'x'],
    ['not held when it is free on the only node', [free], 1, undefined],
    ['held when all of three nodes store it', [has('x'), has('x'), has('x')], 2, 'x'],
    ['held when two of three nodes store it', [has('x'), free, has('x')], 2, 'x'],
    [
      'held when two of three nodes store it and the third does not answer',
      [away, has('x'), has('x')],
      2,
      'x',
    ],
    ['not held when one of three nodes stores it', [has('x'), free, free], 2, undefined],
    ['not held when three nodes store three different ids', [has('x'), has('y'), has('z')], 2, undefined],
    ['held by the id that two of three nodes store', [has('x'), has('y'), has('y')], 2, 'y'],
    [
      'not held when four nodes store two ids, each without a quorum',
      [has('x'), has('x'), has('y'), has('y')],
      3,
      undefined,
    ],
    [
      'not held when one of three nodes stores it and one does not answer',
      [has('x'), free, away],
      2,
      undefined,
    ],
  ])('infoOf reports a key as %s', (_name, votes, quorum, id) => {
    const info = infoOf('k', votes, quorum);
    expect(info).toMatchObject({ key: 'k', held: id !== undefined, id, votes });
    expect(info.owner).toBe(id && `owner of ${id}`);
    expect(info.since).toBe(id && SINCE);
  });
});

// The remaining time is the longest time for which a quorum stores the same id.
describe('infoOf: the remaining time', () => {
  test.each<[string, LockVote[], number, number]>([
    ['the remaining time on the only node', [has('x', 300)], 1, 300],
    ['the second longest of three remaining times', [has('x', 300), has('x', 100), has('x', 200)], 2, 200],
    [
      'the shorter of two remaining times, when the third node is free',
      [has('x', 300), free, has('x', 200)],
      2,
      200,
    ],
    [
      'a remaining time of the id that two of three nodes store, not the longer time of the other id',
      [has('x', 300), has('y', 900), has('x', 200)],
      2,
      200,
    ],
    [
      'the third longest of four remaining times',
      [has('x', 100), has('x', 200), has('x', 300), has('x', 400)],
      3,
      200,
    ],
    ['an infinite remaining time when the key does not expire', [has('x', Infinity)], 1, Infinity],
    ['no remaining time when only one of three nodes stores the key', [has('x', 300), free, free], 2, 0],
  ])('infoOf reports %s', (_name, votes, quorum, remaining) => {
    expect(infoOf('k', votes, quorum).remaining).toBe(remaining);
  });
});

describe('infoOf: the fencing token', () => {
  test.each<[string, LockVote[], number, number | undefined]>([
    ['the fencing token on the only node', [has('x', 1, 7)], 1, 7],
    ['the fencing token on which three nodes agree', [has('x', 1, 7), has('x', 1, 7), has('x', 1, 7)], 2, 7],
    // The first node granted the lock later, after the other two had formed a quorum.
    [
      'the fencing token of two nodes when the third has a larger token',
      [has('x', 1, 9), has('x', 1, 7), has('x', 1, 7)],
      2,
      7,
    ],
    [
      'the fencing token of two nodes when the third has a smaller token',
      [has('x', 1, 7), has('x', 1, 5), has('x', 1, 7)],
      2,
      7,
    ],
    // The lock's token cannot be determined while a node is down.
    [
      'no fencing token when two nodes differ and one is down',
      [has('x', 1, 9), has('x', 1, 7), away],
      2,
      undefined,
    ],
    [
      'no fencing token when only one of three nodes stores the key',
      [free, has('x', 1, 7), free],
      2,
      undefined,
    ],
  ])('infoOf reports %s', (_name, votes, quorum, token) => {
    expect(infoOf('k', votes, quorum).fencingToken).toBe(token);
  });
});

test('`voteOf` describes the vote of a node without the key, with the key, and with an error', () => {
  const node = { name: 'a' } as LockStore;
  const entry = { id: 'x', owner: 'me', since: 5, remaining: 1, fencingToken: 2, mode: 'exclusive' as const };
  const holder = { ...entry, since: new Date(5) };
  const error = new Error('WRONGTYPE');
  expect(voteOf(node, undefined)).toEqual({ node: 'a', vote: 'free' });
  const state = { mode: 'exclusive' as const, holders: [entry] };
  expect(voteOf(node, state)).toEqual({ node: 'a', vote: 'held', ...holder, holders: [holder] });
  expect(voteOf(node, error)).toEqual({ node: 'a', vote: 'error', error });
});
