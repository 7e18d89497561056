import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// Tokens of readers, writers and permits over several nodes, with any number of duplicates and no assumption about clocks:
// see kinds.c. What it takes for granted of one node is shown in members.test.ts.

// Grants and raises of any others as steps of their own, other readers among them: kinds.c says why they need not be.
const LONG: [string, SearchSettings, number][] = [
  ['a reader, a writer, and anybody', { readers: 1, writers: 1, others: 1 }, 1_354_171],
  ['two writers, and anybody', { writers: 2, others: 1 }, 251_144],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('kinds');
});

describe('tokens of those that exclude each other differ and increase in real-time order (J2, J3)', () => {
  test.each<[string, SearchSettings, number]>([
    ['a reader and a writer', { readers: 1, writers: 1 }, 35_022],
    ['two writers', { writers: 2 }, 15_425],
    ['two permits of a slot', { permits: 2 }, 15_518],
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
    ['one of each, over two nodes', { nodes: 2, readers: 1, writers: 1, permits: 1, keys: 0 }, 177_396],
    ['two permits and a writer, over two nodes', { nodes: 2, permits: 2, writers: 1, keys: 0 }, 144_722],
    [
      'a reader, a writer, and anybody, over two nodes',
      { nodes: 2, readers: 1, writers: 1, others: 1 },
      14_120,
    ],
    [
      'a permit, a writer, and anybody, over two nodes',
      { nodes: 2, permits: 1, writers: 1, others: 1 },
      53_867,
    ],
    [
      'a permit, a reader, and anybody, over two nodes',
      { nodes: 2, permits: 1, readers: 1, others: 1 },
      74_524,
    ],
    ['two permits, and anybody, over two nodes', { nodes: 2, permits: 2, others: 1 }, 42_526],
    ...(process.env.MODEL === 'long' ? LONG : []),
  ])('%s', (_what, given, states) => {
    // The number shows a change that makes the search smaller by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('the search finds a violation when', () => {
  const reads = { readers: 1, writers: 1 };
  const permits = { permits: 1, writers: 1 };
  test.each<[string, SearchSettings]>([
    ['the token is not written back', { ...reads, plant: 1 }],
    ["readers' tokens are not written back", { ...reads, plant: 2 }],
    ['a writer raises whatever the token of the record', { ...reads, plant: 3 }],
    ['the token is written back blindly', { ...reads, plant: 4 }],
    ['a reader raises where it is no reader any more', { ...reads, plant: 5 }],
    ['a reader lowers the token of the record', { nodes: 2, readers: 2, writers: 1, plant: 6 }],
    ['a reader that joins takes the token of another node', { nodes: 2, readers: 2, writers: 1, plant: 7 }],
    ['the first reader of a phase does not count up', { ...reads, plant: 8 }],
    ['a writer does not count up after readers', { ...reads, plant: 9 }],
    ['a reader is admitted beside the record of a writer', { ...reads, plant: 10 }],
    ['a quorum is half of the nodes', { ...reads, plant: 11 }],
    ['a phase of permits begins without a floor', { ...permits, plant: 12 }],
    ["a slot's token may be as large as the one before", { permits: 2, plant: 13 }],
    ['the grant of a slot does not lift the token of the record', { ...permits, plant: 14 }],
    ['the raise of a slot does not lift the token of the record', { ...permits, plant: 15 }],
    ["a permit raises whatever the slot's last token", { permits: 2, plant: 16 }],
    ['a permit raises where it has another slot', { permits: 2, plant: 17 }],
  ])('%s', (_what, given) => {
    expect(search(given).broken).toMatch(/^J[23]:/);
  });
});

describe('a reader that was granted a larger token than it raises to', () => {
  // Only a duplicate does that, after the reader had lapsed and somebody else held the lock.
  const given = { readers: 1, writers: 1, own: 0 };

  test('gets the token of a writer when its token is raised', () => {
    expect(search(given).broken).toBe('J2: a reader has the token of one who is no reader');
  });

  test('may be raised when the order of tokens stays the same', () => {
    expect(search({ ...given, apart: 0 })).toEqual({ states: 30_192, broken: undefined });
  });
});
