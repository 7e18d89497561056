import { type Lease, ID_LENGTH } from '../../core/lease.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { TickMark } from '../../core/tick.js';

const OURS = new RegExp(`^([0-9a-f]{${ID_LENGTH}}):(\\d+):(.*)$`, 's');

/** What a lock key's value says. */
export interface ParsedLockValue {
  /** The id of the claim; the whole value when something else wrote the key. */
  readonly id: string;
  readonly owner: string;
  /** When it was acquired, in milliseconds since 1970 by the holder's clock; `undefined` when something else wrote the key. */
  readonly since: number | undefined;
}

/**
 * What a lock key holds: the id of the claim, which proves ownership, and for people since when it is held (in
 * milliseconds since 1970) and the owner's name.
 */
export function lockValue({ id, since, owner }: Lease): string {
  return `${id}:${since}:${owner}`;
}

/** Reads a lock key's value. One that something else wrote is id and owner in one. */
export function parseLockValue(value: string): ParsedLockValue {
  const [, id, since, owner] = OURS.exec(value) ?? [];
  return id !== undefined && since !== undefined && owner !== undefined
    ? { id, owner, since: Number(since) }
    : { id: value, owner: value, since: undefined };
}

/** The owner's name in a lock key's value; the value itself when something else wrote the key. */
export function ownerOf(value: string): string {
  return parseLockValue(value).owner;
}

/** What the key of a schedule's last tick holds: the tick, and the name of who ran it, which is for people. */
export function tickValue({ owner }: Lease, { at }: TickMark): string {
  return `${at}:${owner}`;
}

/** The owner's name in such a value. */
export function runnerOf(value: string): string {
  return value.slice(value.indexOf(':') + 1);
}

/** What a queue holds for a place: the process and the number, by which it is told, and the owner's name, which is for people. */
export function placeName({ process, number, owner }: WaiterId): string {
  return `${process}:${number}:${owner}`;
}

/** The owner's name in what a queue holds. */
export function ownerOfPlace(name: string): string {
  return name.replace(/^\w+:\d+:/, '');
}
