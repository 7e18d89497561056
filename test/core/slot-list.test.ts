import { expect, test } from '@jest/globals';
import { NO_SLOT, SlotList } from '../../lib/core/slot-list.js';

class Guest {
  slot = NO_SLOT;
  other = NO_SLOT;
  constructor(readonly name: number) {}
}

function listOf(count: number): { readonly list: SlotList<'slot', Guest>; readonly guests: Guest[] } {
  const list = new SlotList<'slot', Guest>('slot');
  const guests = Array.from({ length: count }, (_, name) => new Guest(name));
  for (const guest of guests) list.add(guest);
  return { list, guests };
}

function namesIn(list: Iterable<Guest>): number[] {
  return [...list].map(({ name }) => name).toSorted((a, b) => a - b);
}

test('SlotList iterates in insertion order until the first removal, and then over all remaining members', () => {
  const { list, guests } = listOf(5);
  expect([...list]).toEqual(guests);

  for (const name of [4, 0, 2]) list.delete(guests[name]!);

  expect(namesIn(list)).toEqual([1, 3]);
  expect(list.size).toBe(2);
  expect(guests.map((guest) => list.has(guest))).toEqual([false, true, false, true, false]);
});

test('SlotList keeps the other members when a member is removed twice or an unknown object is removed', () => {
  const { list, guests } = listOf(3);
  list.delete(guests[1]!);
  list.delete(guests[1]!);
  list.delete(new Guest(9));
  expect(namesIn(list)).toEqual([0, 2]);
});

test('SlotList accepts a member again after its removal', () => {
  const { list, guests } = listOf(3);
  for (const guest of guests) list.delete(guest);
  expect(list.size).toBe(0);
  for (const guest of guests.toReversed()) list.add(guest);
  list.delete(guests[0]!);
  expect(namesIn(list)).toEqual([1, 2]);
});

test('SlotList skips a member that is removed during iteration, and visits all others', () => {
  const { list, guests } = listOf(10);
  const seen: number[] = [];
  for (const { name } of list) {
    seen.push(name);
    if (name === 2) for (const gone of [9, 5, 3]) list.delete(guests[gone]!);
  }
  expect(seen.toSorted((a, b) => a - b)).toEqual([0, 1, 2, 4, 6, 7, 8]);
});

test('one object can be in two SlotLists that use different properties of the object', () => {
  const { list, guests } = listOf(3);
  const others = new SlotList<'other', Guest>('other');
  for (const guest of guests.toReversed()) others.add(guest);
  list.delete(guests[0]!);
  others.delete(guests[2]!);
  expect(namesIn(list)).toEqual([1, 2]);
  expect(namesIn(others)).toEqual([0, 1]);
});
