import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// healing.c searches for a lock that is lost although one node failed at a time (S26), and for a record that nobody holds
// (S27). exclusion.c and quorum.c search the effect of a healing on other claims.

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('healing');
});

test.each<[string, SearchSettings, number]>([
  ['three nodes', {}, 288],
  ['four nodes', { nodes: 4 }, 414],
  ['five nodes', { nodes: 5 }, 540],
  ['three nodes that keep their data', { losses: 0 }, 167],
  ['three nodes that may grant other claims', { claim: 3 }, 1_950],
  ['four nodes that may grant other claims', { claim: 3, nodes: 4 }, 6_031],
  ['three nodes that keep their data and may grant other claims', { claim: 3, losses: 0 }, 1_270],
])(
  'a lock that heals is not lost by failures of one node at a time, and leaves no record after its release, with %s',
  (_what, given, states) => {
    // A smaller number shows that a change has left out some states by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  },
);

describe('with a broken rule or condition,', () => {
  test.each<[string, RegExp, SearchSettings]>([
    ['a lock does not heal', /^S26:/, { plant: 1 }],
    ['a node does not store a lease again that has lapsed there', /^S26:/, { plant: 2, losses: 0 }],
    ['a node fails before a renewal has healed the node that failed before it', /^S26:/, { pause: 0 }],
    ['a node fails while another claim keeps a second node from healing', /^S26:/, { plant: 6, claim: 3 }],
    ['a lock heals after its release', /^S27:/, { plant: 3 }],
    ['no second release follows the deadline of a healing', /^S27:/, { plant: 4 }],
    ['the second release comes before the deadline of a healing', /^S27:/, { plant: 5 }],
  ])('the search finds a violation when %s', (_what, broken, given) => {
    expect(search(given).broken).toMatch(broken);
  });
});
