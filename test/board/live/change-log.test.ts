import { expect, test } from '@jest/globals';
import { ChangeLog } from '../../../lib/board/live/change-log.js';

test('ChangeLog returns each missed change with its own id', () => {
  const log = new ChangeLog();
  const { id } = log;
  for (const change of ['a', 'b', 'c']) log.add(change);
  const missed = log.after(id)!;
  expect(missed.map(([change]) => change)).toEqual(['a', 'b', 'c']);
  const [[, afterFirst]] = missed as [[string, string]];
  expect(log.after(afterFirst)!.map(([change]) => change)).toEqual(['b', 'c']);
  expect(missed.at(-1)![1]).toBe(log.id);
  expect(log.after(log.id)).toEqual([]);
});

test('ChangeLog returns undefined for an id of another log, for a future id and for a too old id', () => {
  const log = new ChangeLog();
  const { id } = log;
  for (let change = 0; change < 61; change++) log.add('change');
  expect(log.after(id)).toBeUndefined();
  expect(log.after(new ChangeLog().id)).toBeUndefined();
  expect(log.after(`${log.epoch}.62`)).toBeUndefined();
});

test('ChangeLog keeps at most eight million characters, and drops a longer change', () => {
  const log = new ChangeLog();
  const { id } = log;
  const half = 'x'.repeat(4_000_000);
  log.add(half);
  const { id: second } = log;
  log.add(half);
  expect(log.after(id)).toHaveLength(2);
  log.add('y');
  expect(log.after(id)).toBeUndefined();
  expect(log.after(second)).toHaveLength(2);
  log.add(half + half + 'z');
  expect(log.after(second)).toBeUndefined();
  expect(log.after(log.id)).toEqual([]);
});
