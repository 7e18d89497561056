import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// permits.c searches for more than n holders of n permits. Each holder has a majority for one and the same slot.

const LONG: [string, SearchSettings, number][] = [
  ['three claims of three permits', { slots: 3, permits: 3 }, 240_018],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('permits');
});

describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number]>([
    ['three claims of two permits', { permits: 3 }, 16_991],
    ['two claims of one permit', { slots: 1 }, 133],
    ['two claims of three permits', { slots: 3 }, 5_196],
    ['two claims of two permits, and an exclusive lock', { permits: 2, exclusive: 1 }, 6_894],
    ['a permit and two exclusive locks', { permits: 1, exclusive: 2 }, 1_773],
    ['two nodes', { nodes: 2 }, 346],
    ['four nodes', { nodes: 4 }, 6_281],
    ['five nodes', { nodes: 5 }, 22_415],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])(
    'the search finds no two permits in one slot and none beside an exclusive lock (J1), with %s',
    (_what, given, states) => {
      // A smaller number shows that a change has left out some states by mistake.
      expect(search(given)).toEqual({ states, broken: undefined });
    },
  );
});

describe('with a broken rule or condition,', () => {
  test.each<[string, RegExp, SearchSettings]>([
    [
      'a majority of grants is enough even if the slots differ',
      /^J1: more hold permits than there are/,
      { plant: 1, permits: 3 },
    ],
    [
      'a claim that asks for one specific other slot also keeps its old slot',
      /^slots: a claim has two/,
      { plant: 2 },
    ],
    [
      'a claim that asks for one specific slot gets that slot although the slot is held',
      /^J1: two holders/,
      { plant: 3 },
    ],
    [
      'the old slot of a claim stays blocked after the claim gets a different slot',
      /^slots: one is neither free/,
      { plant: 4 },
    ],
    [
      'a late reply with a different slot counts for a claim that asked for one specific slot',
      /^J1: two holders/,
      { plant: 5 },
    ],
    ['an extension counts in any slot', /^J1: two holders/, { plant: 6 }],
    [
      'a permit is granted beside an exclusive lock',
      /^J1: somebody holds/,
      { plant: 7, permits: 1, exclusive: 1 },
    ],
    [
      'an exclusive lock is granted beside permits',
      /^J1: somebody holds/,
      { plant: 8, permits: 1, exclusive: 1 },
    ],
    ['a release frees the slot of another claim', /^J1: two holders/, { plant: 9 }],
    ['a quorum is half of the nodes', /^J1: two holders/, { plant: 10 }],
  ])('the search finds a violation when %s', (_what, broken, given) => {
    expect(search(given).broken).toMatch(broken);
  });
});
