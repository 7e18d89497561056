import { describe, expect, test } from '@jest/globals';
import { duration, holderTable, lockJson, lockTable, table, voteTable } from '../../lib/cli/format.js';
import { infoOf, type LockVote } from '../../lib/core/lock-info.js';

test('table() makes each column as wide as its widest cell', () => {
  expect(table(['A', 'LONG', 'C'], [['wide cell', '1', 'x'], ['2'], []])).toEqual([
    'A          LONG  C',
    'wide cell  1     x',
    '2',
    '',
  ]);
});

test('table() shortens long keys in the middle when rows are wider than the terminal', () => {
  const rows = [
    ['a-very-long-key-that-ends-in:17', 'me:1'],
    ['short', 'you:2'],
  ];
  expect(table(['KEY', 'OWNER'], rows, 27)).toEqual([
    'KEY                   OWNER',
    'a-very-lon\u2026nds-in:17  me:1',
    'short                 you:2',
  ]);
  // The table does not become narrower, because nobody could read shorter keys.
  expect(table(['KEY', 'OWNER'], rows, 3)).toEqual([
    'KEY               OWNER',
    'a-very-l\u2026s-in:17  me:1',
    'short             you:2',
  ]);
  expect(table(['KEY', 'OWNER'], rows)).toEqual(table(['KEY', 'OWNER'], rows, 38));
  expect(table(['KEY', 'OWNER'], rows)[1]).toBe('a-very-long-key-that-ends-in:17  me:1');
});

test('table() aligns columns that contain characters of width two or zero', () => {
  expect(
    table(
      ['KEY', 'B'],
      [
        ['日本語', 'x'],
        ['🔑', 'x'],
        ['q\u0301', 'x'],
        ['абв', 'x'],
      ],
    ),
  ).toEqual(['KEY     B', '日本語  x', '🔑      x', 'q\u0301       x', 'абв     x']);
});

test.each([
  [0, '0 ms'],
  [999.4, '999 ms'],
  [1_234, '1.2 s'],
  [59_949, '59.9 s'],
  [61_000, '1 min 1 s'],
  [3_661_000, '1 h 1 min'],
  [47 * 3_600_000, '47 h 0 min'],
  [49 * 3_600_000, '2 d 1 h'],
  [Infinity, 'for ever'],
])('duration() formats %p milliseconds as %p', (milliseconds, text) => {
  expect(duration(milliseconds)).toBe(text);
});

const holder = {
  id: 'x',
  owner: 'me',
  since: new Date(0),
  remaining: 1_500,
  fencingToken: 7,
  mode: 'exclusive' as const,
};
const held: LockVote = { node: 'a:1', vote: 'held', ...holder, holders: [holder] };
const free: LockVote = { node: 'b:1', vote: 'free' };
const away: LockVote = { node: 'c:1', vote: 'error', error: new Error('not connected') };

test('lockTable() shows "(no quorum)" for a key that only a minority of nodes stores', () => {
  const [, line] = lockTable([infoOf('k', [held, free, free], 2)]);
  expect(line).toMatch(/^k +\(no quorum\) +1 of 3$/);
});

test('voteTable() prints a line for every node', () => {
  expect(voteTable([held, free, away])).toEqual([
    'NODE  SAYS  OWNER  ID  ENDS IN  TOKEN',
    'a:1   held  me     x   1.5 s    7',
    'b:1   free',
    'c:1  error  not connected',
  ]);
});

test('lockJson() writes every known field, and null for unknown fields', () => {
  const unending = { ...holder, remaining: Infinity };
  const forever: LockVote = { ...held, ...unending, holders: [unending] };
  const told = { id: 'x', owner: 'me', since: '1970-01-01T00:00:00.000Z', remaining: null, fencingToken: 7 };
  expect(JSON.parse(JSON.stringify(lockJson(infoOf('k', [forever, free, away], 1))))).toEqual({
    key: 'k',
    held: true,
    permits: null,
    ...told,
    mode: 'exclusive',
    holders: [{ ...told, mode: 'exclusive' }],
    votes: [
      {
        node: 'a:1',
        vote: 'held',
        ...told,
        mode: 'exclusive',
        holders: [{ ...told, mode: 'exclusive' }],
      },
      { node: 'b:1', vote: 'free' },
      { node: 'c:1', vote: 'error', error: 'not connected' },
    ],
  });
});

describe('a lock with several holders', () => {
  const first = { ...holder, mode: 'permits' as const, slot: 3 };
  const second = { ...first, id: 'y', owner: 'you', remaining: 2_500, fencingToken: 9, slot: 0 };
  const permits = (node: string): LockVote => ({
    node,
    vote: 'held',
    ...first,
    permits: 5,
    holders: [first, second],
  });
  const info = infoOf('k', [permits('a:1'), permits('b:1'), away], 2);
  const readers = [first, second].map(({ slot: _slot, ...reader }) => ({
    ...reader,
    mode: 'shared' as const,
  }));
  const shared: LockVote = { node: 'a:1', vote: 'held', ...readers[0]!, holders: readers };

  test('lockTable() prints one line for all holders of a lock, with their number', () => {
    const rows = lockTable([info, infoOf('r', [shared], 1), infoOf('x', [held], 1)]).map((row) =>
      row.split(/ {2,}/),
    );
    expect(rows.map(([key, mode, owner, , ends, token]) => [key, mode, owner, ends, token])).toEqual([
      ['KEY', 'MODE', 'OWNER', 'ENDS IN', 'TOKEN'],
      ['k', '2 of 5', 'me and 1 more', '1.5 s', '7'],
      ['r', 'shared', 'you and 1 more', '2.5 s', '9'],
      ['x', 'exclusive', 'me', '1.5 s', '7'],
    ]);
  });

  test('holderTable() prints a line for each holder, with its slot if it has one', () => {
    expect(holderTable(info.holders).map((row) => row.split(/ {2,}/).toSpliced(3, 1))).toEqual([
      ['SLOT', 'OWNER', 'ID', 'ENDS IN', 'TOKEN'],
      ['3', 'me', 'x', '1.5 s', '7'],
      ['0', 'you', 'y', '2.5 s', '9'],
    ]);
    expect(holderTable(readers)[0]).toMatch(/^OWNER +ID +HELD FOR/);
  });

  test('voteTable() prints a line for each holder on each node', () => {
    expect(voteTable([permits('a:1'), free])).toEqual([
      'NODE  SAYS    OWNER  ID  ENDS IN  TOKEN',
      'a:1   slot 3  me     x   1.5 s    7',
      '      slot 0  you    y   2.5 s    9',
      'b:1   free',
    ]);
  });

  test('lockJson() lists all holders of a lock', () => {
    expect(JSON.parse(JSON.stringify(lockJson(info)))).toMatchObject({
      mode: 'permits',
      permits: 5,
      id: 'x',
      holders: [
        { id: 'x', slot: 3 },
        { id: 'y', slot: 0 },
      ],
      votes: [{ holders: [{ id: 'x' }, { id: 'y' }] }, { node: 'b:1' }, { vote: 'error' }],
    });
  });
});
