import { expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import type { AcquireRequest } from '../../../lib/core/ports.js';
import type { Tick } from '../../../lib/core/tick.js';
import {
  leasePart,
  modeOfRecord,
  ownerOfTick,
  ownerOfWaiter,
  parseDetails,
  parseRecord,
  PROCESS_LENGTH,
  RECORD,
  STATE,
  tickValue,
  WAITER,
  waiterName,
} from '../../../lib/stores/redis/record.js';

const OWNERS = ['host:1', 'a:b:c', 'ünïcode', ' two words ', ''];

/** A record of a held lease, as the scripts write it. */
function recordOf(lease: Lease, since: number, token: number): string {
  const request: AcquireRequest = { lease, since, limit: 1_000, guard: 0, proposal: 0, position: undefined };
  return `${STATE.held}-${String(token).padStart(16, '0')}:${leasePart(request)}`;
}

test.each(OWNERS)('a record contains the token, the id, the start time and the owner %p', (owner) => {
  const lease = new Lease(['k'], owner, 100);
  for (const token of [1, 1_782_579_200_000_000, Number.MAX_SAFE_INTEGER]) {
    expect(parseRecord(recordOf(lease, 1_700_000_000_123, token))).toEqual({
      fencingToken: token,
      id: lease.id,
      since: 1_700_000_000_123,
      owner,
    });
  }
});

test('every field of a record, up to the owner, is at the offset that the scripts read', () => {
  const lease = new Lease(['k'], '', 100);
  const record = recordOf(lease, Date.now(), 1_782_579_200_000_000);
  // Positions in Lua begin with 1, and a range includes its last position.
  const cut = ([from, to]: readonly number[]): string => record.slice(from! - 1, to);
  expect(record).toHaveLength(RECORD.shortest);
  expect(record.charCodeAt(0)).toBe(RECORD.held);
  expect(cut(RECORD.token)).toBe('1782579200000000');
  expect(cut(RECORD.id)).toBe(lease.id);
  // A colon follows each field of digits, and the id.
  for (const position of [RECORD.token[1], RECORD.id[1], RECORD.shortest - 1])
    expect(record[position]).toBe(':');
});

test('the first letter of a record shows its state and its mode', () => {
  const { held, free, kept, shared, permits } = RECORD;
  expect([held, free, kept, shared, permits]).toEqual([...'HFKSP'].map((letter) => letter.charCodeAt(0)));
  const modes = Object.values(STATE).map(modeOfRecord);
  expect(modes).toEqual(['exclusive', 'exclusive', 'exclusive', 'shared', 'permits']);
});

test.each(OWNERS)(
  'the hash entry of a reader contains the token, the start time and the owner %p',
  (owner) => {
    expect(parseDetails(`0000000000000042:1700000000123:${owner}`)).toEqual({
      fencingToken: 42,
      since: 1_700_000_000_123,
      owner,
    });
  },
);

test.each(OWNERS)(
  'the stored value for a tick of a schedule begins with the time of the tick, and contains the owner %p',
  (owner) => {
    const tick: Tick = { schedule: 'nightly', at: 1_700_000_000_000, life: 1_000, from: 'release' };
    const lease = new Lease(['k'], owner, 100, tick);
    const marks = [0, 999, 1_700_000_000_000].map((at) => tickValue(lease, { ...tick, at }));
    expect(marks.map((mark) => Number(mark.slice(0, 16)))).toEqual([0, 999, 1_700_000_000_000]);
    expect(marks.toSorted()).toEqual(marks);
    expect(marks.map(ownerOfTick)).toEqual([owner, owner, owner]);
  },
);

test.each(OWNERS)('the name of a waiter contains its process, number, mode and the owner %p', (owner) => {
  const process = '0123456789abcdef';
  for (const number of [1, 42]) {
    const name = waiterName({ keys: ['k'], mode: 'exclusive', process, number, owner });
    expect(name.slice(0, PROCESS_LENGTH)).toBe(process);
    // A message ends with this number, by which a process finds its waiter.
    expect(Number.parseInt(name.slice(PROCESS_LENGTH + 1), 10)).toBe(number);
    expect(ownerOfWaiter(name)).toBe(owner);
    const names = (['exclusive', 'shared', 'permits'] as const).map((mode) =>
      waiterName({ keys: ['k'], mode, process, number, owner }),
    );
    const codes = names.map((each) => each.charCodeAt(WAITER.mode - 1));
    expect(codes).toEqual(['x'.charCodeAt(0), WAITER.shared, WAITER.permits]);
  }
});
