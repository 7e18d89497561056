import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// quorum.c searches for tokens that break J2 or J3, over several nodes without clocks. one-node.test.ts shows that the
// assumptions of quorum.c about one node are true. README.md explains a raise.

const LONG: [string, SearchSettings, number][] = [['four nodes', { nodes: 4 }, 1_018_803]];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('quorum');
});

describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number]>([
    ['one node', { nodes: 1 }, 74],
    ['two nodes', { nodes: 2 }, 1_543],
    ['three nodes', { nodes: 3 }, 48_625],
    ['three nodes, with a raise on all of them', { nodes: 3, agreed: 0 }, 37_583],
    ['three nodes, on which claims heal (S26)', { nodes: 3, heals: 1 }, 181_207],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('tokens are unique and increase in real-time order (J2, J3) over %s', (_what, given, states) => {
    // A smaller number shows that a change has left out some states by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('with a broken rule or condition,', () => {
  test.each<[string, number]>([
    ['a claim returns its token without a raise', 1],
    ['a node accepts the raise of the holder below the token of the record', 2],
    ['the raise of the holder lowers the token of the record', 3],
    ['a node accepts the raise of a claim that does not hold the lock', 4],
    ['a node accepts every raise', 5],
    ['one node that has the token is enough', 6],
    ['a quorum is half of the nodes', 7],
    ['a grant may repeat the token of the earlier grant', 8],
  ])('the search finds a wrong token (J2 or J3) when %s', (_what, plant) => {
    for (const agreed of [0, 1]) expect(search({ plant, agreed }).broken).toMatch(/^J[23]:/);
  });

  test('the search finds a wrong token when a claim that heals lowers the token of a node', () => {
    expect(search({ heals: 1, plant: 9 }).broken).toMatch(/^J3:/);
  });
});
