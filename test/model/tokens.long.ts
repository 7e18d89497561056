import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// tokens.c searches for tokens that break J2 or J3. One model contains several nodes, their clocks and markers, and
// records that a node forgets. `npm run model` also runs the larger searches. README.md explains terms such as linger,
// lead, marker and raise.

const LONG: [string, SearchSettings, number][] = [
  ['three nodes, clocks three ticks apart', { span: 3, any: 0, burst: 0 }, 11_870_562],
  ['three nodes, any tokens', { span: 2, any: 1, burst: 0 }, 1_818_342],
  ['three nodes, a lead of one tick', { span: 2, linger: 2, lead: 1, any: 0, burst: 0 }, 13_288_946],
  ['three nodes, tokens that get ahead of the clocks by counting', { span: 2, any: 0, burst: 1 }, 4_357_928],
  ['three nodes, one of which loses its data', { span: 2, any: 0, burst: 0, losses: 1, guard: 3 }, 1_532_495],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('tokens');
});

describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number]>([
    ['one node, whose clock falls', { nodes: 1, span: 6, linger: 3, back: 1 }, 182_867],
    ['two nodes, with any tokens that are large enough', { nodes: 2, span: 3 }, 663_377],
    ['three nodes, clocks two ticks apart, a linger of one tick', { span: 2, any: 0, burst: 0 }, 787_760],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('tokens are unique and increase in real-time order (J2, J3) with %s', (_what, given, states) => {
    // A smaller number shows that a change has left out some states by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('with a broken rule or condition,', () => {
  test.each<[string, SearchSettings]>([
    ['a claim returns its token without a raise', { plant: 1 }],
    ['a node accepts the raise of the holder below the token of the record', { plant: 2 }],
    ['the raise of the holder lowers the token of the record', { plant: 3 }],
    [
      'a node raises a record that is not held, and forgets the record too soon',
      { plant: 4, span: 2, linger: 2, lead: 1 },
    ],
    ['a node accepts every raise', { plant: 5 }],
    ['a node accepts the raise of a claim that does not hold the lock', { plant: 6 }],
    ['a quorum is half of the nodes', { plant: 7 }],
    ['there is no marker', { plant: 8 }],
    ['grants do not raise the marker', { plant: 9 }],
    ['raises do not raise the marker', { plant: 10 }],
    ['a grant may repeat the token of the earlier grant', { plant: 11 }],
    ['nodes ignore the marker', { plant: 12 }],
    ['the guard is shorter than the difference of the clocks', { span: 3, losses: 1, guard: 1 }],
  ])('the search over three nodes finds a wrong token (J2 or J3) when %s', (_what, given) => {
    expect(search({ span: 4, any: 0, burst: 0, ...given }).broken).toMatch(/^J[23]:/);
  });
});
