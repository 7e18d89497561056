import type { Lease } from '../../core/lease.js';
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
 * | 1 | state: `H` held, `F` free, `K` kept for `minHold` after its release |
 * | 2 | `w` when somebody waits in the queue of the key, else `-` |
 * | 3-18 | the last fencing token, in decimal |
 * | 20-51 | the id of the lease |
 * | 53-65 | when the lease was asked for, by its owner's clock, in milliseconds since 1970; for people |
 * | 67- | the owner's name; for people |
 *
 * A lock is held while its record is not free and expires in more than {@link LINGER_MS}.
 */
export const STATE = { held: 'H', free: 'F', kept: 'K' } as const;

/** Length of the random name of a process, with which the name of a waiter begins. */
export const PROCESS_LENGTH = 16;

/** Positions in a record, from 1 as Lua counts, and the codes of its first two characters. */
export const RECORD = {
  held: STATE.held.charCodeAt(0),
  free: STATE.free.charCodeAt(0),
  kept: STATE.kept.charCodeAt(0),
  waited: 'w'.charCodeAt(0),
  token: [3, 18],
  id: [20, 19 + ID_LENGTH],
  shortest: 66,
} as const;

/** The part of a record that the client writes: id, time and owner. The script puts state and token before it. */
export function leasePart({ lease: { id, owner }, since }: AcquireRequest): string {
  return `${id}:${String(since).padStart(13, '0')}:${owner}`;
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

/** What the key of a schedule's last tick holds: the tick in 16 digits, and the name of who ran it, which is for people. */
export function tickMark({ owner }: Lease, { at }: TickMark): string {
  return `${String(at).padStart(16, '0')}:${owner}`;
}

/** The owner's name in such a mark. */
export function ownerOfMark(mark: string): string {
  return mark.slice(17);
}

/** What a queue holds for a waiter: the process and the number, by which it is told, and the owner's name, which is for people. */
export function waiterName({ process, number, owner }: WaiterId): string {
  return `${process}:${number}:${owner}`;
}

/** The owner's name in what a queue holds. */
export function ownerOfWaiter(name: string): string {
  return name.slice(name.indexOf(':', PROCESS_LENGTH + 1) + 1);
}
