import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// Tokens over several nodes with clocks, records that are forgotten and markers, in one piece: see tokens.c.
// `npm run model` has the larger searches, too.

const LONG: [string, SearchSettings, number][] = [
  ['three nodes, clocks three ticks apart', { span: 3, any: 0, burst: 0 }, 11_870_562],
  ['three nodes, any tokens', { span: 2, any: 1, burst: 0 }, 1_818_342],
  ['three nodes, a lead of one', { span: 2, linger: 2, lead: 1, any: 0, burst: 0 }, 13_288_946],
  ['three nodes, tokens that get ahead by counting', { span: 2, any: 0, burst: 1 }, 4_357_928],
  ['three nodes, one of which loses its data', { span: 2, any: 0, burst: 0, losses: 1, guard: 3 }, 1_532_495],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('tokens');
});

describe('tokens are unique and increase in real-time order (J2, J3)', () => {
  test.each<[string, SearchSettings, number]>([
    ['one node, whose clock falls', { nodes: 1, span: 6, linger: 3, back: 1 }, 182_867],
    ['two nodes, any tokens', { nodes: 2, span: 3 }, 663_377],
    ['three nodes, clocks two ticks apart, a linger of one', { span: 2, any: 0, burst: 0 }, 787_760],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('%s', (_what, given, states) => {
    // The number shows a change that makes the search smaller by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('the search over three nodes finds a violation when', () => {
  test.each<[string, SearchSettings]>([
    ['the token is not written back', { plant: 1 }],
    ['the token is written back wherever the lock is held, whatever the token of the record', { plant: 2 }],
    ['the token is written back so, and lowers the one of the record', { plant: 3 }],
    [
      'what is not held is raised, so that it is forgotten too soon',
      { plant: 4, span: 2, linger: 2, lead: 1 },
    ],
    ['the token is written back blindly', { plant: 5 }],
    ['the token is written back whoever holds the lock', { plant: 6 }],
    ['a quorum is half of the nodes', { plant: 7 }],
    ['there is no marker', { plant: 8 }],
    ['grants do not lift the marker', { plant: 9 }],
    ['raises do not lift the marker', { plant: 10 }],
    ['a grant may repeat the token of the grant before', { plant: 11 }],
    ['the marker is not looked at', { plant: 12 }],
    ['the guard is shorter than the skew', { span: 3, losses: 1, guard: 1 }],
  ])('%s', (_what, given) => {
    expect(search({ span: 4, any: 0, burst: 0, ...given }).broken).toMatch(/^J[23]:/);
  });
});
