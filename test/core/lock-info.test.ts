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

describe('a key is held when a quorum reports the same id', () => {
  test.each<[string, LockVote[], number, string | undefined]>([
    ['one node has it', [has('x')], 1, 'x'],
    ['one node, free', [free], 1, undefined],
    ['all of three', [has('x'), has('x'), has('x')], 2, 'x'],
    ['two of three', [has('x'), free, has('x')], 2, 'x'],
    ['two of three, the third away', [away, has('x'), has('x')], 2, 'x'],
    ['one of three', [has('x'), free, free], 2, undefined],
    ['three ids on three nodes', [has('x'), has('y'), has('z')], 2, undefined],
    ['a quorum beside another id', [has('x'), has('y'), has('y')], 2, 'y'],
    ['two of four is no quorum', [has('x'), has('x'), has('y'), has('y')], 3, undefined],
    ['one of three, one away: not enough to say so', [has('x'), free, away], 2, undefined],
  ])('%s', (_name, votes, quorum, id) => {
    const info = infoOf('k', votes, quorum);
    expect(info).toMatchObject({ key: 'k', held: id !== undefined, id, votes });
    expect(info.owner).toBe(id && `owner of ${id}`);
    expect(info.since).toBe(id && SINCE);
  });
});

describe('the remaining time is the longest that a quorum reports for one id', () => {
  test.each([
    [[has('x', 300)], 1, 300],
    [[has('x', 300), has('x', 100), has('x', 200)], 2, 200],
    [[has('x', 300), free, has('x', 200)], 2, 200],
    // The time of another holder does not count.
    [[has('x', 300), has('y', 900), has('x', 200)], 2, 200],
    [[has('x', 100), has('x', 200), has('x', 300), has('x', 400)], 3, 200],
    [[has('x', Infinity)], 1, Infinity],
    [[has('x', 300), free, free], 2, 0],
  ])('%#', (votes, quorum, remaining) => {
    expect(infoOf('k', votes, quorum).remaining).toBe(remaining);
  });
});

describe('the fencing token is the one that a quorum of nodes agrees on', () => {
  test.each([
    [[has('x', 1, 7)], 1, 7],
    [[has('x', 1, 7), has('x', 1, 7), has('x', 1, 7)], 2, 7],
    // The third node granted after the other two had decided.
    [[has('x', 1, 9), has('x', 1, 7), has('x', 1, 7)], 2, 7],
    [[has('x', 1, 7), has('x', 1, 5), has('x', 1, 7)], 2, 7],
    // The lock's token cannot be determined while a node is down.
    [[has('x', 1, 9), has('x', 1, 7), away], 2, undefined],
    [[free, has('x', 1, 7), free], 2, undefined],
  ])('%#', (votes, quorum, token) => {
    expect(infoOf('k', votes, quorum).fencingToken).toBe(token);
  });
});

test('describes a node without the key, with the key, and without an answer', () => {
  const node = { name: 'a' } as LockStore;
  const entry = { id: 'x', owner: 'me', since: 5, remaining: 1, fencingToken: 2, mode: 'exclusive' as const };
  const holder = { ...entry, since: new Date(5) };
  const error = new Error('WRONGTYPE');
  expect(voteOf(node, undefined)).toEqual({ node: 'a', vote: 'free' });
  const state = { mode: 'exclusive' as const, holders: [entry] };
  expect(voteOf(node, state)).toEqual({ node: 'a', vote: 'held', ...holder, holders: [holder] });
  expect(voteOf(node, error)).toEqual({ node: 'a', vote: 'error', error });
});
