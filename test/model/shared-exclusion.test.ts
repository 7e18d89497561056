import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// shared-exclusion.c searches for a reader beside a writer within their validity. `npm run model` also runs the larger
// searches.

const LONG: [string, SearchSettings, number][] = [
  ['losses and clocks that gain, one after the other', {}, 2_351_180],
  ['a ttl of four ticks, without losses', { ttl: 4, guard: 4, losses: 0, others: 0 }, 1_457_148],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('shared-exclusion');
});

describe('no reader holds the lock beside a writer within their validity (J1), over three nodes, with', () => {
  test.each<[string, SearchSettings, number]>([
    ['other readers with any ends', { losses: 0, gain: 0, drift: 0 }, 44_652],
    ['clocks that gain', { losses: 0, others: 0 }, 182_821],
    ['two nodes, other readers, clocks that gain, and losses', { nodes: 2 }, 80_854],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('%s', (_what, given, states) => {
    // A smaller number of states shows that a change has left out some by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('the search finds a reader beside a writer when', () => {
  const still = { losses: 0, gain: 0, drift: 0 };
  test.each<[string, SearchSettings]>([
    ['a reader is admitted beside the record of a writer', { ...still, plant: 1 }],
    ['a writer is admitted beside readers', { ...still, plant: 2 }],
    ["a reader that joins sets the record's end to its own", { ...still, plant: 3 }],
    ["a reader that extends sets the record's end to its own", { ...still, plant: 4 }],
    ['a release frees the record while others read', { ...still, plant: 5 }],
    ['validity is counted from the reply', { ...still, plant: 6 }],
    ['an extension counts on a node where others read and the claim does not', { ...still, plant: 7 }],
    [
      'an extension counts on a node where the reader has lapsed and a writer was granted',
      { ...still, plant: 8 },
    ],
    ['a quorum is half of the nodes', { ...still, plant: 9 }],
    ['the validity has no allowance for clocks that gain', { drift: 0, losses: 0, others: 0 }],
    ['the guard is shorter than the ttl, and data is lost', { guard: 2, others: 0 }],
  ])('%s', (_what, given) => {
    expect(search(given).broken).toMatch(/^J1:/);
  });
});
