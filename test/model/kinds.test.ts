import { beforeAll, describe, expect, test } from '@jest/globals';
import { compileSearch, type SearchResult, type SearchSettings } from './complete-search.js';

// kinds.c searches tokens of readers, writers and permits over several nodes, with any number of duplicates and without
// clocks. members.test.ts shows its assumptions about one node.

// These searches add the steps of other claims, also of other readers. kinds.c explains why the others need none.
const LONG: [string, SearchSettings, number][] = [
  ['a reader, a writer, and other claims', { readers: 1, writers: 1, others: 1 }, 1_354_171],
  ['two writers, and other claims', { writers: 2, others: 1 }, 251_144],
];

let search: (given: SearchSettings) => SearchResult;

beforeAll(() => {
  search = compileSearch('kinds');
});

describe('tokens of claims that exclude each other differ and increase in real-time order (J2, J3), with', () => {
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
  ])('%s', (_what, given, states) => {
    // A smaller number of states shows that a change has left out some by mistake.
    expect(search(given)).toEqual({ states, broken: undefined });
  });
});

describe('the search finds a violation when', () => {
  const reads = { readers: 1, writers: 1 };
  const permits = { permits: 1, writers: 1 };
  test.each<[string, SearchSettings]>([
    ['the token is not written back', { ...reads, plant: 1 }],
    ["readers' tokens are not written back", { ...reads, plant: 2 }],
    ["a writer raises a token below the record's", { ...reads, plant: 3 }],
    ['the token is written back blindly', { ...reads, plant: 4 }],
    ['a reader raises on a node where it is no reader any more', { ...reads, plant: 5 }],
    ['a reader lowers the token of the record', { nodes: 2, readers: 2, writers: 1, plant: 6 }],
    ['a reader that joins takes the token of another node', { nodes: 2, readers: 2, writers: 1, plant: 7 }],
    ['the first reader of a phase does not count up', { ...reads, plant: 8 }],
    ['a writer does not count up after readers', { ...reads, plant: 9 }],
    ['a reader is admitted beside the record of a writer', { ...reads, plant: 10 }],
    ['a quorum is half of the nodes', { ...reads, plant: 11 }],
    ['a phase of permits begins without a floor', { ...permits, plant: 12 }],
    ["a slot's token may equal the token before", { permits: 2, plant: 13 }],
    ['the grant of a slot does not lift the token of the record', { ...permits, plant: 14 }],
    ['the raise of a slot does not lift the token of the record', { ...permits, plant: 15 }],
    ["a permit raises a token below the slot's last one", { permits: 2, plant: 16 }],
    ['a permit raises on a node where it has another slot', { permits: 2, plant: 17 }],
  ])('%s', (_what, given) => {
    expect(search(given).broken).toMatch(/^J[23]:/);
  });
});

describe('a reader with a larger granted token than the one to which it raises', () => {
  // Only a duplicate leads to this, after the reader had lapsed and another claim held the lock.
  const given = { readers: 1, writers: 1, own: 0 };

  test('gets the token of a writer if a node raises it', () => {
    expect(search(given).broken).toBe('J2: a reader has the token of one who is no reader');
  });

  test('breaks no rule after a raise if only the order of tokens matters', () => {
    expect(search({ ...given, apart: 0 })).toEqual({ states: 30_192, broken: undefined });
  });
});
