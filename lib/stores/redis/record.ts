import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { AcquireRequest, Holder } from '../../core/ports.js';
import type { TickMark } from '../../core/tick.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { ID_LENGTH } from '../../core/lease.js';

/**
 * How long a record is kept after its lock was released or has lapsed, in milliseconds: as long as the key's last token must
 * be remembered. What comes after that is larger by the clock alone, unless the clock was set back by so much.
 *
 * Part of the data format: a process with a larger one would take a live lock for a lapsed one.
 */
export const LINGER_MS = 30_000;

/**
 * The one record of a lock, the string under its Redis key. Every field but the last has a fixed width, so that scripts
 * cut it by position and parse nothing:
 *
 * | position | field |
 * | --- | --- |
 * | 1 | state: `H` held, `F` free, `K` kept for `minHold` after its release; `S` held by readers, `P` permits of it are |
 * | 2 | `w` when somebody waits in the queue of the key, else `-` |
 * | 3-18 | the last fencing token, in decimal |
 * | 20-51 | the id of the lease |
 * | 52 | `+` when readers hold it and others lie beside it, else a colon |
 * | 53-65 | when the lease was asked for, by its owner's clock, in milliseconds since 1970; for people |
 * | 67- | the owner's name; for people |
 *
 * A lock is held while its record is not free and expires in more than {@link LINGER_MS}.
 *
 * Where several hold it, id, time and owner are those of the one who ends last, as is the expiry, and the token is that of the
 * phase of the readers or the largest of the permits. So whoever wants the lock alone reads this record alone. What it says of
 * permits besides is in scripts/permits.ts. Of readers the others lie beside it, and live longer: so one alone needs the record
 * alone. What is there without a `+` in the record is left of an earlier phase, and counts for nothing.
 *
 * - `:h`, a sorted set: the ids of the leases, by when each ends, in milliseconds since 1970 by the server's clock;
 * - `:s`, a hash: for each id its token in 16 digits, a colon, when it was asked for in 13, a colon, and the owner; also for the
 *   reader whom the record names, if its token is not the record's.
 */
export const STATE = { held: 'H', free: 'F', kept: 'K', shared: 'S', permits: 'P' } as const;

/** Length of the random name of a process, with which the name of a waiter begins. */
export const PROCESS_LENGTH = 16;

/** The letter of a waiter's mode, which comes next. */
const LETTER: Readonly<Record<LockMode, string>> = { exclusive: 'x', shared: 's', permits: 'p' };

const MODES = Object.keys(LETTER) as LockMode[];

/** Where that letter stands in a waiter's name, as Lua counts, and its codes. */
export const WAITER = {
  mode: PROCESS_LENGTH + 1,
  shared: LETTER.shared.charCodeAt(0),
  permits: LETTER.permits.charCodeAt(0),
} as const;

/**
 * A mark of one who waits: when it came, in 13 digits of milliseconds since 1970 by the server's clock, a colon, and its name.
 * Positions as Lua counts.
 */
export const MARK = { came: [1, 13], name: 15, mode: 14 + WAITER.mode, shortest: 15 + WAITER.mode } as const;

/** Positions in a record, from 1 as Lua counts, and the codes of its first two characters. */
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
  others: '+'.charCodeAt(0),
  shortest: 66,
} as const;

/**
 * The part of a record that the client writes: id, time and owner. The script puts state and token before it.
 *
 * @param fields - what its mode has before the owner
 */
export function leasePart({ lease: { id, owner }, since }: AcquireRequest, fields = ''): string {
  return `${id}:${String(since).padStart(13, '0')}:${fields}${owner}`;
}

/** What a record says. */
export interface LockRecord extends Pick<Holder, 'id' | 'owner'> {
  readonly fencingToken: number;
  /** In milliseconds since 1970, by the owner's clock. */
  readonly since: number;
}

/** Reads a record that a script has found to be one. */
export function parseRecord(record: string): LockRecord {
  return {
    fencingToken: Number(record.slice(2, 18)),
    id: record.slice(19, 51),
    since: Number(record.slice(52, 65)),
    owner: record.slice(66),
  };
}

/** In which mode a lock is held, by its record. */
export function modeOfRecord(record: string): LockMode {
  if (record.startsWith(STATE.shared)) return 'shared';
  return record.startsWith(STATE.permits) ? 'permits' : 'exclusive';
}

/** What is told of a reader beside the record. */
export function parseDetails(details: string): Omit<LockRecord, 'id'> {
  const fencingToken = Number(details.slice(0, 16));
  return { fencingToken, since: Number(details.slice(17, 30)), owner: details.slice(31) };
}

/** What the key of a schedule's last tick holds: the tick in 16 digits, and the name of who ran it, which is for people. */
export function tickMark({ owner }: Lease, { at }: TickMark): string {
  return `${String(at).padStart(16, '0')}:${owner}`;
}

/** The owner's name in such a mark. */
export function ownerOfMark(mark: string): string {
  return mark.slice(17);
}

/**
 * What a queue holds for a waiter: the process, a letter for the mode, the number, by which it is told, and the owner's name,
 * which is for people.
 */
export function waiterName({ process, mode, number, owner }: WaiterId): string {
  return `${process}${LETTER[mode]}${number}:${owner}`;
}

/** What such a name says. */
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

/** The owner's name in what a queue holds. */
export function ownerOfWaiter(name: string): string {
  return name.slice(name.indexOf(':', PROCESS_LENGTH + 1) + 1);
}
