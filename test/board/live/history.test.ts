import { describe, expect, test } from '@jest/globals';
import { History } from '../../../lib/board/live/history.js';
import type { HistoryEntry } from '../../../lib/board/live/messages.js';

function skipped(key: string, at = Date.now()): HistoryEntry {
  return { kind: 'skipped', key, who: 'api:1', at, reason: 'held' };
}

describe('History', () => {
  test('History keeps the last 200 entries of a key in order', () => {
    const history = new History();
    const now = Date.now();
    for (let n = 0; n < 1_000; n++) history.add(skipped('a', now + n));
    expect(history.of('a')).toEqual(Array.from({ length: 200 }, (_, n) => skipped('a', now + 800 + n)));
  });

  test('History keeps the entries of a rarely used key when another key has many entries', () => {
    const history = new History();
    history.add(skipped('quiet'));
    for (let n = 0; n < 100_000; n++) history.add(skipped('busy'));
    expect(history.of('quiet')).toHaveLength(1);
  });

  test('History keeps the most recently used keys, and at most 20,000 entries', () => {
    const history = new History();
    for (let n = 0; n < 50_000; n++) history.add(skipped(`order:${n}`));
    expect(history.of('order:0')).toEqual([]);
    expect(history.of('order:49999')).toHaveLength(1);
    const all = history.beginningWith('order:', Infinity).length;
    expect(all).toBeGreaterThanOrEqual(16_000);
    expect(all).toBeLessThanOrEqual(20_000);
  });

  test('History forgets entries after ten minutes, except entries of locks that are still held', () => {
    const history = new History();
    const before = Date.now() - 11 * 60_000;
    history.add(skipped('a', before));
    const held = { kind: 'held', key: 'a', who: 'api:1', from: before, own: true } as const;
    history.add(held);
    history.add({ ...held, to: before + 1_000 });
    expect(history.of('a')).toEqual([held]);
  });

  test('History lists the entries of all keys with a given prefix, latest first', () => {
    const history = new History();
    for (const key of ['order:1', 'bill:1', 'order:2']) history.add(skipped(key));
    expect(history.beginningWith('order:', 10).map(({ key }) => key)).toEqual(['order:2', 'order:1']);
    expect(history.beginningWith('order:', 1).map(({ key }) => key)).toEqual(['order:2']);
  });
});
