import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// kinds.c searches for tokens of readers, writers and permits that break J2 or J3, over several nodes without clocks.
// The nodes may execute each message any number of times. members.test.ts shows that the assumptions of kinds.c about
// one node are true. README.md and kinds.c explain terms such as phase, raise and floor.

// These searches add the steps of other claims, also of other readers. kinds.c explains why the other searches do not
// need these steps.
const LONG: [string, SearchSettings, number][] = [
  ['a reader, a writer, and other claims', { readers: 1, writers: 1, others: 1 }, 1_354_171],
  ['two writers, and other claims', { writers: 2, others: 1 }, 251_144],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('kinds');
});

describe('with the rules of the library,', () => {
  test.each<[string, SearchSettings, number]>([
    ['a reader and a writer', { readers: 1, writers: 1 }, 35_022],
    ['two writers', { writers: 2 }, 15_425],
    ['two permits of one slot', { permits: 2 }, 15_518],
    ['a permit and a writer', { permits: 1, writers: 1 }, 130_823],
    ['a permit and a reader', { permits: 1, readers: 1 }, 144_689],
    [
      'two readers and a writer, without duplicates',
      { readers: 2, writers: 1, keys: 0, duplicates: 0 },
      207_912,
    ],
    [
      'a reader and two writers, without duplicates',
      { readers: 1, writers: 2, keys: 0, duplicates: 0 },
      90_048,
    ],
    ['two readers and a writer, over two nodes', { nodes: 2, readers: 2, writers: 1, keys: 0 }, 143_413],
    ['a reader and two writers, over two nodes', { nodes: 2, readers: 1, writers: 2 }, 70_765],
    [
      'a reader, a writer and a permit, over two nodes',
      { nodes: 2, readers: 1, writers: 1, permits: 1, keys: 0 },
      177_396,
    ],
    ['two permits and a writer, over two nodes', { nodes: 2, permits: 2, writers: 1, keys: 0 }, 144_722],
    [
      'a reader, a writer, and other claims, over two nodes',
      { nodes: 2, readers: 1, writers: 1, others: 1 },
      14_120,
    ],
    [
      'a permit, a writer, and other claims, over two nodes',
      { nodes: 2, permits: 1, writers: 1, others: 1 },
      53_867,
    ],
    [
      'a permit, a reader, and other claims, over two nodes',
      { nodes: 2, permits: 1, readers: 1, others: 1 },
      74_524,
    ],
    ['two permits, and other claims, over two nodes', { nodes: 2, permits: 2, others: 1 }, 42_526],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])(
    'tokens of conflicting claims differ and increase in real-time order (J2, J3) with %s',
    (_what, given, states) => {
      // A smaller number shows that a change has left out some states by mistake.
      expect(search(given)).toEqual({ states, broken: undefined });
    },
  );
});

describe('with a broken rule or condition,', () => {
  const reads = { readers: 1, writers: 1 };
  const permits = { permits: 1, writers: 1 };
  test.each<[string, SearchSettings]>([
    ['a claim returns its token without a raise', { ...reads, plant: 1 }],
    ['a reader returns its token without a raise', { ...reads, plant: 2 }],
    ['a node accepts the raise of a writer below the token of the record', { ...reads, plant: 3 }],
    ['a node accepts every raise', { ...reads, plant: 4 }],
    ['a node accepts the raise of a claim that is no longer a reader on that node', { ...reads, plant: 5 }],
    ['the raise of a reader lowers the token of the record', { nodes: 2, readers: 2, writers: 1, plant: 6 }],
    ['a reader that joins gets the token of another node', { nodes: 2, readers: 2, writers: 1, plant: 7 }],
    ['the first reader of a phase gets no larger token', { ...reads, plant: 8 }],
    ['a writer after readers gets no larger token', { ...reads, plant: 9 }],
    ['a node grants a reader beside a writer', { ...reads, plant: 10 }],
    ['a quorum is half of the nodes', { ...reads, plant: 11 }],
    ['a phase of permits begins without a floor for its tokens', { ...permits, plant: 12 }],
    ['a grant may repeat the last token of its slot', { permits: 2, plant: 13 }],
    ['the grant of a slot does not raise the token of the record', { ...permits, plant: 14 }],
    ['the raise of a slot does not raise the token of the record', { ...permits, plant: 15 }],
    ['a node accepts the raise of a permit below the last token of its slot', { permits: 2, plant: 16 }],
    [
      'a node accepts the raise of a permit that has a different slot on that node',
      { permits: 2, plant: 17 },
    ],
  ])('the search finds a wrong token (J2 or J3) when %s', (_what, given) => {
    expect(search(given).broken).toMatch(/^J[23]:/);
  });
});

describe('when a node accepts the raise of a reader to which it granted a larger token,', () => {
  // The node grants the larger token to a duplicate of the acquisition, after the reader has lapsed and another claim
  // has held the lock.
  const given = { readers: 1, writers: 1, own: 0 };

  test('the search finds a reader and a writer with the same token (J2)', () => {
    expect(search(given).broken).toBe('J2: a reader has the token of a claim that is not a reader');
  });

  test('the search finds no violation if a reader and a writer may have equal tokens', () => {
    expect(search({ ...given, apart: 0 })).toEqual({ states: 30_192, broken: undefined });
  });
});
