import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// members.c searches one node with its clock and with a record that the node forgets. The members of the record are
// readers or holders of permits. kinds.c, permits.c and shared-exclusion.c assume the results; together they prove the
// promises for readers and permits. README.md and kinds.c explain terms such as linger, lead, phase and floor.

const SHARED = 2;
const PERMITS = 3;

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('members');
});

// The promises: tokens increase, no claim counts after a later grant excluded it, and no released claim holds the lock
// again after its deadline.
describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number, number]>([
    ['the clock never falls', { back: 0 }, 2_774, 4_141],
    ['the clock falls by almost half of linger minus lead', { back: 1 }, 32_440, 57_664],
    ['the clock falls further, and the linger is longer', { back: 2, linger: 6 }, 225_018, 462_033],
    ['the deadline is longer than the linger', { limit: 5 }, 85_954, 169_182],
    [
      'a slot keeps its last token for the next permits when no other claim held the lock',
      { keep: 1 },
      32_440,
      52_838,
    ],
  ])('the search finds no violation while %s', (_what, given, readers, permits) => {
    // A smaller number shows that a change has left out some states by mistake.
    expect(search({ ...given, mode: SHARED })).toEqual({ states: readers, broken: undefined });
    expect(search({ ...given, mode: PERMITS })).toEqual({ states: permits, broken: undefined });
  });
});

describe('with a broken rule or condition,', () => {
  test.each<[string, RegExp, SearchSettings]>([
    ['the clock falls by half of linger minus lead', /^tokens:/, { linger: 3 }],
    ['the clock falls by half of a longer linger minus lead', /^tokens:/, { back: 2, linger: 5 }],
    [
      'a node extends a member without a check of the record, and the clock fell after an exclusive grant',
      /^extending:/,
      { plant: 1 },
    ],
    ['a node raises the token of a member without a check of the record', /^raising:/, { plant: 2 }],
    ['the first grant of a phase keeps the members of the earlier phase', /^extending:/, { plant: 3 }],
    ['the first reader of a phase gets no larger token', /^tokens:/, { plant: 4 }],
    ["the tokens of slots do not raise the record's token", /^tokens:/, { plant: 6 }],
    ['nothing raises the marker', /^tokens:/, { plant: 7 }],
    ['the last release deletes the record', /^tokens:/, { plant: 8 }],
    ['an acquisition has no deadline', /^revival:/, { plant: 9 }],
  ])('the search finds a violation when %s', (_what, broken, given) => {
    for (const mode of [SHARED, PERMITS]) expect(search({ ...given, mode }).broken).toMatch(broken);
  });

  test.each<[string, SearchSettings]>([
    ['a phase of permits begins without a floor for its tokens', { plant: 5 }],
    ['the tokens of slots are forgotten before the record, and no floor replaces them', { plant: 10 }],
    ['a slot keeps its last token after another claim held the lock', { plant: 11 }],
  ])('the search finds a wrong token of a permit when %s', (_what, given) => {
    expect(search({ ...given, mode: PERMITS }).broken).toMatch(/^tokens:/);
  });
});

test('readers and permits need no checks of the record if the clock never falls', () => {
  for (const mode of [SHARED, PERMITS])
    for (const plant of [1, 2, 3]) expect(search({ plant, mode, back: 0 }).broken).toBeUndefined();
});
