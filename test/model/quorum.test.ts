import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// Tokens over several nodes, with no assumption about clocks: see quorum.c. What it takes for granted of one node is
// shown in one-node.test.ts.

const LONG: [string, SearchSettings, number][] = [['four nodes', { nodes: 4 }, 1_018_803]];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('quorum');
});

describe('tokens are unique and increase in real-time order (J2, J3)', () => {
  test.each<[string, SearchSettings, number]>([
    ['one node', { nodes: 1 }, 74],
    ['two nodes', { nodes: 2 }, 1_543],
    ['three nodes', { nodes: 3 }, 48_625],
    ['three nodes, all of which are raised', { nodes: 3, agreed: 0 }, 37_583],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('over %s', (_what, given, states) => {
    // The number shows a change that makes the search smaller by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('the search finds a violation when', () => {
  test.each<[string, number]>([
    ['the token is not written back', 1],
    ['the token is written back wherever the claim holds the lock, whatever the token of the record', 2],
    ['the token is written back so, and lowers the one of the record', 3],
    ['the token is written back wherever it is not below, whoever holds the lock', 4],
    ['the token is written back blindly', 5],
    ['one node that has the token is enough', 6],
    ['a quorum is half of the nodes', 7],
    ['a grant may repeat the token of the grant before', 8],
  ])('%s', (_what, plant) => {
    for (const agreed of [0, 1]) expect(search({ plant, agreed }).broken).toMatch(/^J[23]:/);
  });
});
