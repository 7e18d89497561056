import { describe, expect, test } from '@jest/globals';
import { infoOf, type LockInfo, type NodeHolder } from '../../../lib/core/lock-info.js';
import { LockTable, type Beside } from '../../../lib/board/live/lock-table.js';

const NOBODY: Beside = { held: new Set(), waitersOf: () => [] };

function heldBy(key: string, ...holders: Partial<NodeHolder>[]): LockInfo {
  const all = holders.map((holder): NodeHolder => ({
    id: 'a',
    owner: 'api:1',
    since: new Date(1_000),
    remaining: 10_000,
    fencingToken: 7,
    mode: 'exclusive',
    ...holder,
  }));
  const [first] = all as [NodeHolder];
  return infoOf(key, [{ node: 'n', vote: 'held', ...first, holders: all }], 1);
}

function mapOf(...infos: LockInfo[]): ReadonlyMap<string, LockInfo> {
  return new Map(infos.map((info) => [info.key, info]));
}

describe('LockTable.update', () => {
  test('LockTable.update() returns no change if only the remaining time of a lock has become shorter', () => {
    const table = new LockTable();
    expect(table.update(mapOf(heldBy('k', {})), NOBODY, 0).rows).toHaveLength(1);
    const change = table.update(mapOf(heldBy('k', { remaining: 9_600 })), NOBODY, 410);
    expect(change).toEqual({ rows: [], renewed: [], gone: [], begun: [], ended: [] });
  });

  test('LockTable.update() returns the new end and the number of extensions of an extended lock', () => {
    const table = new LockTable();
    table.update(mapOf(heldBy('k', {})), NOBODY, 0);
    expect(table.update(mapOf(heldBy('k', {})), NOBODY, 3_000).renewed).toEqual([[1, 0, 13_000, 1, 10_000]]);
    expect(table.update(mapOf(heldBy('k', {})), NOBODY, 6_000).renewed).toEqual([[1, 0, 16_000, 2, 10_000]]);
    // A lock that is kept for `minHold` after its release ends sooner than before.
    expect(table.update(mapOf(heldBy('k', { remaining: 100 })), NOBODY, 6_400).renewed).toEqual([
      [1, 0, 6_500, 2, 10_000],
    ]);
  });

  test.each([
    ['since the start of the hold, before any extension', 0, 3_000, 7_000, 10_000],
    ['as at most one and a half times the time left, for a hold of an hour', 0, 3_600_000, 6_000, 9_000],
    ['as no less than the time left, if the clock of the holder is ahead', 5_000, 1_000, 10_000, 10_000],
  ])('LockTable.update() estimates the ttl of a lock %s', (_, since, now, remaining, ttl) => {
    const info = heldBy('k', { since: new Date(since), remaining });
    expect(new LockTable().update(mapOf(info), NOBODY, now).rows).toMatchObject([{ holders: [{ ttl }] }]);
  });

  test('LockTable.update() takes the time left after an extension as the ttl, but not after a slow look', () => {
    const table = new LockTable();
    const ttlAt = (now: number, remaining: number): number | undefined => {
      table.update(mapOf(heldBy('k', { since: new Date(0), remaining })), NOBODY, now);
      return table.rows[0]?.holders[0]?.ttl;
    };
    expect(ttlAt(0, 600_000)).toBe(600_000);
    // The end was found 300 ms later than before, which is more than a usual look takes.
    expect(ttlAt(560_000, 40_300)).toBe(600_000);
    expect(ttlAt(590_000, 29_900)).toBe(29_900);
    expect(ttlAt(600_000, 30_000)).toBe(30_000);
  });

  test('LockTable.update() returns a full row for a new holder, and reports the new and the ended hold', () => {
    const table = new LockTable();
    table.update(mapOf(heldBy('k', {})), NOBODY, 0);
    const { rows, begun, ended } = table.update(
      mapOf(heldBy('k', { id: 'b', fencingToken: 8 })),
      NOBODY,
      400,
    );
    expect(rows).toMatchObject([{ n: 1, holders: [{ id: 'b', renewals: 0, token: 8 }] }]);
    expect(begun.map(({ holder }) => holder.id)).toEqual(['b']);
    expect(ended).toMatchObject([{ holder: { id: 'a' }, ends: 10_000 }]);
  });

  test('LockTable.update() returns a row that says whether a lock is detached', () => {
    const info = mapOf(heldBy('k', { detached: true }), heldBy('other', {}));
    const { rows } = new LockTable().update(info, NOBODY, 0);
    expect(rows.map(({ holders: [holder] }) => holder?.detached)).toEqual([true, undefined]);
  });

  test('LockTable.update() gives a key the same row number when the key is locked again', () => {
    const table = new LockTable();
    table.update(mapOf(heldBy('k', {})), NOBODY, 0);
    expect(table.update(mapOf(), NOBODY, 400).gone).toEqual([1]);
    expect(table.keyOf(1)).toBe('k');
    expect(
      table.update(mapOf(heldBy('other', {}), heldBy('k', { id: 'b' })), NOBODY, 800).rows,
    ).toMatchObject([
      { n: 2, key: 'other' },
      { n: 1, key: 'k' },
    ]);
  });

  test('LockTable.update() returns no mode for a lock without a quorum, and no end for a lock without a ttl', () => {
    const table = new LockTable();
    const minority = infoOf('k', heldBy('k', {}).votes, 2);
    expect(table.update(mapOf(minority), NOBODY, 0).rows).toMatchObject([
      { mode: null, holders: [], nodes: [1, 1] },
    ]);
    expect(table.update(mapOf(heldBy('k', { remaining: Infinity })), NOBODY, 0).rows).toMatchObject([
      { holders: [{ ends: null }] },
    ]);
    expect(table.rows[0]?.holders[0]).not.toHaveProperty('ttl');
  });

  test('LockTable.update() returns at most 20,000 locks with 20 holders and 20 waiters each, and reports that more exist', () => {
    const table = new LockTable();
    const many = Array.from({ length: 20_003 }, (_, n) => heldBy(`k${n}`, {}));
    expect(table.update(mapOf(...many), NOBODY, 0).rows).toHaveLength(20_000);
    expect(table.hasMore).toBe(true);
    table.update(mapOf(...many.slice(0, 20_000)), NOBODY, 400);
    expect(table.hasMore).toBe(false);
    const readers = Array.from({ length: 25 }, (_, n) => ({ id: `r${n}`, mode: 'shared' as const }));
    const { rows } = new LockTable().update(mapOf(heldBy('k', ...readers)), NOBODY, 0);
    expect(rows).toMatchObject([{ mode: 'shared', more: 5 }]);
    expect(rows[0]?.holders).toHaveLength(20);
    const waiters = Array.from({ length: 23 }, () => ({ owner: 'b', since: 1, mode: 'exclusive' }) as const);
    const waited = new LockTable().update(mapOf(heldBy('k', {})), { ...NOBODY, waitersOf: () => waiters }, 0);
    expect(waited.rows).toMatchObject([{ moreWaiters: 3, waiters: waiters.slice(0, 20) }]);
  });
});
