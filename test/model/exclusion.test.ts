import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// exclusion.c searches for two holders that are both within their validity. `npm run model` also runs the larger
// searches.

const LONG: [string, SearchSettings, number][] = [
  ['three nodes, and a ttl of four ticks', { ttl: 4, guard: 4 }, 3_405_642],
  [
    'three nodes, and a ttl of five ticks, without losses of data',
    { ttl: 5, guard: 5, losses: 0 },
    4_348_807,
  ],
  ['three nodes that come back with older data', { drift: 0, gain: 0, crashes: 1, losses: 0 }, 2_722_111],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('exclusion');
});

describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number]>([
    ['one node that crashes', { nodes: 1, crashes: 1 }, 9_335],
    [
      'three nodes that come back with older data, and a ttl of two ticks',
      { ttl: 2, drift: 0, gain: 0, guard: 2, crashes: 1, losses: 0 },
      299_191,
    ],
    ['three nodes with fast clocks, and extensions', { losses: 0 }, 112_755],
    [
      'three nodes with fast clocks, extensions, and losses of data, never two within the guard time',
      {},
      416_673,
    ],
    // Healing adds no state: a late acquisition of a holder does the same.
    ['three nodes as before, and locks that heal (S26)', { heals: 1 }, 416_673],
    [
      'three nodes that come back with older data while locks heal',
      { ttl: 2, drift: 0, gain: 0, guard: 2, crashes: 1, losses: 0, heals: 1 },
      299_191,
    ],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('the search finds no two holders within their validity (J1) with %s', (_what, given, states) => {
    // A smaller number shows that a change has left out some states by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('with a broken rule or condition,', () => {
  test.each<[string, SearchSettings]>([
    ['validity is counted from the reply', { plant: 1 }],
    ['the validity of an extension is counted from the reply', { plant: 2 }],
    ['the reply to an earlier extension counts for a later extension', { plant: 3 }],
    ['a node extends a lock for a claim that does not hold it', { plant: 4 }],
    ['a node releases a lock for a claim that does not hold it', { plant: 5 }],
    ['two attempts have the same id, and the release of the first attempt comes late', { plant: 6 }],
    ['a quorum is half of the nodes', { plant: 7 }],
    ['a node grants a lock that another claim holds', { plant: 8 }],
    ['one node is enough for an extension', { plant: 10 }],
    ['a lock heals on a node where another claim holds the lock', { heals: 1, plant: 12 }],
  ])('the search finds two holders (J1) when %s', (_what, given) => {
    expect(search({ drift: 0, gain: 0, losses: 0, ...given }).broken).toMatch(/^J1:/);
  });

  test.each<[string, SearchSettings]>([
    ['the validity is not shortened for fast clocks', { drift: 0, losses: 0 }],
    ['the guard is shorter than the ttl, and data is lost', { guard: 2 }],
    ['a lock heals on a node before its guard has ended', { heals: 1, plant: 11 }],
    [
      'a lock heals on a node that came back with the lock of another claim in its older data',
      { ttl: 2, drift: 0, gain: 0, guard: 2, crashes: 1, losses: 0, heals: 1, plant: 13 },
    ],
    [
      'the guard is shorter than the ttl, and a node comes back with older data',
      { drift: 0, gain: 0, crashes: 1, losses: 0, guard: 2 },
    ],
  ])('the search finds two holders (J1) when %s', (_what, given) => {
    expect(search(given).broken).toMatch(/^J1:/);
  });
});

test('the search finds no two holders when a node extends a lapsed lock that no other claim acquired', () => {
  // A node refuses such an extension because it would leave a lock without a holder: see "revival" in one-node.test.ts.
  expect(search({ drift: 0, gain: 0, losses: 0, plant: 9 }).broken).toBeUndefined();
});
