import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { AcquireRequest, Holder } from '../../core/ports.js';
import type { TickMark } from '../../core/tick.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { ID_LENGTH } from '../../core/random-id.js';
import { LINGER_MS } from '../../core/store-times.js';

/**
 * Longest time until the deadline of an acquisition, in milliseconds. If the same command arrives again after its lease
 * has ended, the node refuses it, because the record of the key still has the id of that lease. So the deadline of the
 * command must pass before the record expires, even if the server's clock is set back in between (S16).
 */
export const LONGEST_DEADLINE_MS = LINGER_MS / 3;

/**
 * The record of a lock is the string under its Redis key. Every field except the last has a fixed width, so that
 * scripts read it by position without parsing:
 *
 * | position | field |
 * | --- | --- |
 * | 1 | state: `H` held, `F` free, `K` kept for `minHold` after its release; `S` held by readers, `P` held with permits |
 * | 2 | `w` when a waiter is in the queue of the key, else `-` |
 * | 3-18 | the last fencing token, in decimal |
 * | 20-51 | the id of the lease |
 * | 52 | `+` when other readers are stored besides the reader with this id, else a colon |
 * | 53-65 | the time of the lease's request, by its owner's clock, in milliseconds since 1970; only shown to people |
 * | 67- | the owner's name; only shown to people |
 *
 * A lock is held while its record is not free and expires in more than {@link LINGER_MS}.
 *
 * With several holders, the record has the id, time, owner and expiry of the holder whose lease ends last. For permits,
 * the token in the record is the largest token of all permits. For readers, it is the token of the present phase. A
 * phase lasts from the first reader until the lease of the last reader ends. With these fields, a script for an
 * exclusive caller reads only the record. scripts/permits.ts describes the additional fields of permits.
 *
 * A single reader needs only the record. Further readers are in two other keys, which live longer than the record. If
 * the record has no `+`, these two keys are remains of an earlier phase, and the scripts ignore them.
 *
 * - `:h`, a sorted set: the ids of the leases; the score is the end of the lease in milliseconds since 1970 by the
 *   server's clock;
 * - `:s`, a hash: for each id the token in 16 digits, a colon, the time of the request in 13 digits, a colon, and the
 *   owner. The reader that the record names has an entry in the hash only if its token differs from the token in the
 *   record.
 */
export const STATE = { held: 'H', free: 'F', kept: 'K', shared: 'S', permits: 'P' } as const;

/** The length of the random name of a process. The name of a waiter begins with the name of its process. */
export const PROCESS_LENGTH = 16;

/** The letter for the mode of a waiter. In the name of the waiter, it follows the name of the process. */
const LETTER: Readonly<Record<LockMode, string>> = { exclusive: 'x', shared: 's', permits: 'p' };

const MODES = Object.keys(LETTER) as LockMode[];

/**
 * The position of the mode's letter in a waiter's name, counted from 1 as in Lua, and the character codes of two of the
 * letters.
 */
export const WAITER = {
  mode: PROCESS_LENGTH + 1,
  shared: LETTER.shared.charCodeAt(0),
  permits: LETTER.permits.charCodeAt(0),
} as const;

/**
 * Positions in the mark of a waiter, counted from 1 as in Lua. A mark is the arrival of the waiter (13 digits:
 * milliseconds since 1970 by the server's clock), a colon, and the name of the waiter.
 */
export const MARK = { came: [1, 13], name: 15, mode: 14 + WAITER.mode, shortest: 15 + WAITER.mode } as const;

/**
 * The member of a queue for the turn of its first waiter: the code of its first character, and the positions of the
 * turn's end, in milliseconds since 1970, and of the waiter.
 */
export const TURN = { letter: '!'.charCodeAt(0), ends: [2, 17], waiter: 18 } as const;

/** The code of the first character in the member of a queue for the standbys. */
export const STANDBYS = '?'.charCodeAt(0);

/** Positions in a record, counted from 1 as in Lua, and the codes of its first two characters. */
export const RECORD = {
  held: STATE.held.charCodeAt(0),
  free: STATE.free.charCodeAt(0),
  kept: STATE.kept.charCodeAt(0),
  shared: STATE.shared.charCodeAt(0),
  permits: STATE.permits.charCodeAt(0),
  waited: 'w'.charCodeAt(0),
  token: [3, 18],
  id: [20, 19 + ID_LENGTH],
  beside: 20 + ID_LENGTH,
  since: [21 + ID_LENGTH, 33 + ID_LENGTH],
  owner: 35 + ID_LENGTH,
  others: '+'.charCodeAt(0),
  shortest: 66,
} as const;

/** The part of a text between two positions, which count from 1 as in Lua. */
export function cut(text: string, [first, last]: readonly [number, number]): string {
  return text.slice(first - 1, last);
}

/**
 * The part of a record that the client writes: id, time and owner. The script puts the state and the token before this
 * part.
 *
 * @param fields - the additional fields of the mode, before the owner
 */
export function leasePart({ lease: { id, owner }, since }: AcquireRequest, fields = ''): string {
  return `${id}:${String(since).padStart(13, '0')}:${fields}${owner}`;
}

/** Positions in the details of a reader, which are in the hash `:s` under its id. */
export const READER = { token: [1, 16], since: [18, 30], owner: 32 } as const;

/** Positions in the value of a schedule's last tick. */
export const TICK = { at: [1, 16], owner: 18 } as const;

/** The contents of a record. */
export interface LockRecord extends Pick<Holder, 'id' | 'owner'> {
  readonly fencingToken: number;
  /** Time of the request, in milliseconds since 1970, by the owner's clock. */
  readonly since: number;
}

/** Parses a record that a script has already checked. */
export function parseRecord(record: string): LockRecord {
  return {
    fencingToken: Number(cut(record, RECORD.token)),
    id: cut(record, RECORD.id),
    since: Number(cut(record, RECORD.since)),
    owner: record.slice(RECORD.owner - 1),
  };
}

/** The mode in which a lock is held, from its record. */
export function modeOfRecord(record: string): LockMode {
  if (record.startsWith(STATE.shared)) return 'shared';
  return record.startsWith(STATE.permits) ? 'permits' : 'exclusive';
}

/** Parses the details of a reader that is not in the record. */
export function parseDetails(details: string): Omit<LockRecord, 'id'> {
  const fencingToken = Number(cut(details, READER.token));
  const since = Number(cut(details, READER.since));
  return { fencingToken, since, owner: details.slice(READER.owner - 1) };
}

/**
 * The value under the key of a schedule's last tick: the tick in 16 digits, a colon, and the name of the process that
 * ran it, which only people read.
 */
export function tickValue({ owner }: Lease, { at }: TickMark): string {
  return `${String(at).padStart(TICK.at[1], '0')}:${owner}`;
}

/** Reads the owner's name from the value of a tick. */
export function ownerOfTick(value: string): string {
  return value.slice(TICK.owner - 1);
}

/**
 * The name of a waiter, which is its member in the sorted set of a queue. It has the name of the process, a letter for
 * the mode, the number of the waiter, a colon, and the owner's name. Messages contain the number; only people read the
 * owner's name.
 */
export function waiterName({ process, mode, number, owner }: WaiterId): string {
  return `${process}${LETTER[mode]}${number}:${owner}`;
}

/** Reads the name of a waiter. */
export function parseWaiter(name: string): Omit<WaiterId, 'keys'> {
  const letter = name[PROCESS_LENGTH];
  const end = name.indexOf(':', PROCESS_LENGTH + 1);
  return {
    process: name.slice(0, PROCESS_LENGTH),
    mode: MODES.find((mode) => LETTER[mode] === letter) ?? 'exclusive',
    number: Number(name.slice(PROCESS_LENGTH + 1, end)),
    owner: name.slice(end + 1),
  };
}

/** Reads the owner's name from the name of a waiter. */
export function ownerOfWaiter(name: string): string {
  return name.slice(name.indexOf(':', PROCESS_LENGTH + 1) + 1);
}
