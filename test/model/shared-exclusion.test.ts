import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// shared-exclusion.c searches for a reader beside a writer within their validity. `npm run model` also runs the larger
// searches.

const LONG: [string, SearchSettings, number][] = [
  ['three nodes with fast clocks, and losses of data, never two within the guard time', {}, 2_351_180],
  [
    'three nodes, and a ttl of four ticks, without losses of data',
    { ttl: 4, guard: 4, losses: 0, others: 0 },
    1_457_148,
  ],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('shared-exclusion');
});

describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number]>([
    ['three nodes, and other readers with any ttl', { losses: 0, gain: 0, drift: 0 }, 44_652],
    ['three nodes with fast clocks', { losses: 0, others: 0 }, 182_821],
    ['two nodes with fast clocks, other readers, and losses of data', { nodes: 2 }, 80_854],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])(
    'the search finds no reader beside a writer within their validity (J1), with %s',
    (_what, given, states) => {
      // A smaller number shows that a change has left out some states by mistake.
      expect(search(given)).toEqual({ states, broken: undefined });
    },
  );
});

describe('with a broken rule or condition,', () => {
  const still = { losses: 0, gain: 0, drift: 0 };
  test.each<[string, SearchSettings]>([
    ['a node grants a reader beside a writer', { ...still, plant: 1 }],
    ['a node grants a writer beside readers', { ...still, plant: 2 }],
    ['a reader that joins sets the end of the record to its own end', { ...still, plant: 3 }],
    ['a reader that extends sets the end of the record to its own end', { ...still, plant: 4 }],
    ['a release frees the record while other readers hold it', { ...still, plant: 5 }],
    ['validity is counted from the reply', { ...still, plant: 6 }],
    ['an extension counts on a node where only other readers hold the lock', { ...still, plant: 7 }],
    [
      'an extension counts on a node where the reader has lapsed and a writer was granted',
      { ...still, plant: 8 },
    ],
    ['a quorum is half of the nodes', { ...still, plant: 9 }],
    ['the validity is not shortened for fast clocks', { drift: 0, losses: 0, others: 0 }],
    ['the guard is shorter than the ttl, and data is lost', { guard: 2, others: 0 }],
  ])('the search finds a reader beside a writer (J1) when %s', (_what, given) => {
    expect(search(given).broken).toMatch(/^J1:/);
  });
});
