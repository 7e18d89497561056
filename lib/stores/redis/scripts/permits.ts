import type { KeyHolder } from '../../../core/ports.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { cut, RECORD } from '../record.js';
import { Fragment, localsOf } from './fragment.js';
import { storeEvenIfFull } from './lua.js';
import { freeSlot, luaWidthOf, offsetOf, widthOf } from './slot-map.js';

/**
 * The record of a lock with permits (state `P`). Up to position 65 it is like any other record. Then follow these
 * fields:
 *
 * | position | field |
 * | --- | --- |
 * | 67-70 | the slot of the lease that the record names |
 * | 71-74 | n, the number of slots: the largest option `permits` of any lease of this phase |
 * | 75 | `1` when that lease is the only one; `K` when it is the only one and was released, but `minHold` keeps its slot; `+` with several leases |
 * | 76- | only with several leases: a bitmap of the taken slots, with one character for every six of the n slots (scripts/slot-map.ts) |
 * | then | a colon, and the owner's name; only shown to people |
 * | last 17 | a colon, and the floor: the last token before this phase; the tokens of all slots are larger |
 *
 * The floor is the last field, because only the server knows it and appends it to the client's text.
 *
 * A phase begins with the first holder and ends with the last. While there is only one holder at a time, the record has
 * all data. A permit then costs the same as an exclusive lock: a script that acquires or releases runs two commands.
 * With a set of holders and a hash, the script would run a dozen commands (bench: throughput). The second holder
 * creates two more keys:
 *
 * - `:h`, a sorted set: the ids of the leases; the score is the end of the lease in milliseconds since 1970 by the
 *   server's clock;
 * - `:s`, a hash. Under each id it has the token in 16 digits, a colon, the slot in 4 digits, a colon, the time of the
 *   request in 13 digits, a colon, and the owner. The first colon is a `K` when `minHold` keeps the slot. Under each
 *   slot of this phase it has the last token in 16 digits, a colon, and the id of the last holder. Under `e` it has the
 *   expiry of both keys, which is never earlier than the expiry of the record.
 *
 * Both keys are deleted when the phase ends. The record stays, with the largest token of all slots. This token is the
 * floor of the next phase, and the last token for a lock in another mode.
 */
export const PERMITS = {
  slot: [67, 70],
  count: [71, 74],
  kind: 75,
  bits: 76,
  /**
   * The last character of the owner's name. Negative positions count from the end of the record, as in Lua.
   */
  ownerEnd: -18,
  /** The first digit of the floor. */
  floor: -16,
  alone: '1'.charCodeAt(0),
  kept: 'K'.charCodeAt(0),
  several: '+'.charCodeAt(0),
} as const;

/**
 * Positions in the details of a holder, which are in the hash `:s` under its id, and of the last holder of a slot, which
 * has only the token and the id.
 */
export const PERMIT = {
  token: [1, 16],
  state: 17,
  slot: [18, 21],
  since: [23, 35],
  owner: 37,
  lastId: 18,
} as const;

/**
 * Positions in the client's text for a lease. The text is the part of a single holder's record from the id to the last
 * colon, so the script can usually store it unchanged on a free key.
 */
export const LEASE = { since: [34, 46], slot: 48, count: 52, owner: [58, -2] } as const;

/**
 * Milliseconds by which `:h` and `:s` may outlive the record, so that most acquisitions need not renew their expiry.
 */
export const SPARE_MS = 10_000;

/** The Redis keys of a lease with permits; the parts of the scripts find them in KEYS. */
export const PERMIT_NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });

/** Lua text for the position of the owner's name in a record for `count` permits. */
export function ownerAt(record: string, count: string): string {
  return `(string.byte(${record}, ${PERMITS.kind}) == ${PERMITS.several} and ${luaWidthOf(count)} or 0) + ${PERMITS.bits + 1}`;
}

/**
 * Lua text for the part of the local `record` that does not depend on the holder that it names: from the number of
 * permits to the colon before the owner.
 */
const COMMON = `string.sub(record, ${PERMITS.count[0]}, ${PERMITS.bits} + ${luaWidthOf(`string.sub(record, ${PERMITS.count.join(', ')})`)})`;

/** Lua text that makes the local `record` name the holder `id`, whose details are in the local `own`. */
export const nameInstead = (id: string): Fragment =>
  new Fragment(
    { needs: ['record', 'own', ...localsOf(id)] },
    `
record = string.sub(record, 1, ${RECORD.id[0] - 1}) .. ${id} .. ':' .. string.sub(own, ${PERMIT.since[0]}, ${PERMIT.owner - 1}) .. string.sub(own, ${PERMIT.slot.join(', ')})
  .. ${COMMON} .. string.sub(own, ${PERMIT.owner}) .. string.sub(record, ${PERMITS.ownerEnd + 1})
`,
  );

/**
 * Lua text that sets the local `held` to n, the number of permits in the local `record`, which has the state `P`. If
 * the text in `record` is not a record, `held` is nil or false (S19).
 */
export const COUNT_OF_RECORD = new Fragment(
  { needs: ['record', 'held'] },
  `
held = tonumber(string.sub(record, ${PERMITS.count.join(', ')}))
held = held and string.byte(record, ${ownerAt('record', 'held')} - 1) == 58 and held
`,
);

/**
 * Lua text that makes the record name the holder that ends last. The record then expires {@link LINGER_MS} after that
 * end.
 *
 * Needs the locals `call`, `name` and `record` (the Redis key of the record, and the record), `holders` and `details`
 * (the Redis keys of the set and the hash), and `over`. Sets `record`, and sets `over` when no holder is left; then the
 * record is unchanged.
 */
export const NAME_LAST = new Fragment(
  { needs: ['call', 'name', 'record', 'holders', 'details', 'over'] },
  `
do
  local last, time = call('ZRANGE', holders, -1, -1, 'WITHSCORES'), call('TIME')
  local left = last[1] and math.ceil(last[2] - time[1] * 1000 - time[2] / 1000) or 0
  local own = left > 0 and call('HGET', details, last[1])
  over = left <= 0
  if own then
    ${nameInstead('last[1]')}
  end
  if not over then
    call('SET', name, record, 'PX', left + ${LINGER_MS})
  end
end
`,
);

/**
 * Lua text that frees the slot of one lease, which may have expired.
 *
 * Needs the locals of {@link NAME_LAST} except `over`, and two more locals: `id` and `slot` (the id and the slot of the
 * lease). Sets the locals `over` (true when no holder is left), `record` (its present value) and `failed` (an error, or
 * nil).
 *
 * ZREM comes first: it works when memory is short, and after the first write of a script no other write fails because
 * of memory (S9). A single holder has no set, so SET comes first.
 */
export const END_PERMIT = new Fragment(
  {
    needs: ['call', 'name', 'record', 'holders', 'details', 'id', 'slot'],
    sets: ['several', 'over', 'failed'],
  },
  `
local several, over, failed = string.byte(record, ${PERMITS.kind}) == ${PERMITS.several}, true
if several then
  call('ZREM', holders, id)
  call('HDEL', details, id)
  ${freeSlot('record', 'slot', PERMITS.bits)}
  if string.sub(record, ${RECORD.id.join(', ')}) ~= id then
    over = false
    local at = ${offsetOf('slot', PERMITS.bits)}
    call('SETRANGE', name, at, string.sub(record, at + 1, at + 1))
  else
    ${NAME_LAST}
  end
end
if over then
  record = 'F' .. string.sub(record, 2)
  ${storeEvenIfFull('name', 'record', `'${LINGER_MS}'`)}
  failed = stored.err and stored or nil
  if several then
    call('DEL', holders, details)
  end
end
`,
);

/**
 * Lua text that makes the existing keys `:h` and `:s` live at least as long as a record whose last holder ends at
 * `ends`.
 *
 * Needs the locals `call`, `holders`, `details`, `ends` (in milliseconds since 1970) and `lives` (the present expiry of
 * both keys, or nil). PEXPIREAT always runs, and first: it works when memory is short (S9).
 */
export const KEEP_BOTH = new Fragment(
  { needs: ['call', 'holders', 'details', 'ends', 'lives'] },
  `
if not lives or lives < ends + ${LINGER_MS} then
  lives = ends + ${LINGER_MS + SPARE_MS}
  call('PEXPIREAT', holders, lives)
  call('PEXPIREAT', details, lives)
  call('HSET', details, 'e', lives)
else
  call('PEXPIREAT', holders, lives)
end
`,
);

/** Parses a holder in the hash `:s`; numbers may be strings from a passed-in client (`stringNumbers`). */
export function parsePermit(id: string, details: string, remaining: number): KeyHolder {
  return {
    id,
    owner: details.slice(PERMIT.owner - 1),
    remaining,
    since: Number(cut(details, PERMIT.since)),
    fencingToken: Number(cut(details, PERMIT.token)),
    mode: 'permits',
    slot: Number(cut(details, PERMIT.slot)),
  };
}

/** Parses the holder that a record of permits names. The record has the same details as the hash. */
export function parsePermitRecord(record: string, remaining: number): KeyHolder {
  return {
    id: cut(record, RECORD.id),
    owner: record.slice(
      PERMITS.bits +
        (record.charCodeAt(PERMITS.kind - 1) === PERMITS.several ? widthOf(permitsOfRecord(record)) : 0),
      PERMITS.ownerEnd + 1,
    ),
    remaining,
    since: Number(cut(record, RECORD.since)),
    fencingToken: Number(cut(record, RECORD.token)),
    mode: 'permits',
    slot: Number(cut(record, PERMITS.slot)),
  };
}

/** The number of slots: the largest option `permits` of any lease since the key was last free. */
export function permitsOfRecord(record: string): number {
  return Number(cut(record, PERMITS.count));
}
