import { digitsOf } from '../../core/pass.js';
import { printable } from '../../core/printable.js';
import type { LockKind, LockMode } from '../../core/lock-mode.js';
import type { KeyWaiter } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { KeyRange } from './protocol.js';

// The names of keys in etcd, after the prefix:
//
//   base                                    the number that is added to a revision for a fencing token
//   fence/ETCD-LEASE                        see `EtcdLease.fence`
//   lock/KEY 0 h 0 e ID                     an exclusive holder of the key
//   lock/KEY 0 h 0 p SLOT ID                ... a holder of one of its permits
//   lock/KEY 0 h 0 r ID                     ... a reader
//   ... k                                   a released holder, while `minHold` keeps the key
//   lock/KEY 0 q 0 TIME WAITER              a waiter, in the order of arrival
//   lock/KEY 0 t 0 SCHEDULE 0 TICK          a tick that has run
//
// 0 is a NUL character, which no key has. Names of holders end with the id of their lease, so that a delete by name
// affects no other lease (S7). The id of a detached lock is there in hexadecimal digits, as earlier versions of this
// package read ids, and its value says that it is detached.

const LETTERS: Readonly<Record<LockMode, string>> = { exclusive: 'e', permits: 'p', shared: 'r' };
const MODES: Readonly<Record<string, LockMode>> = { e: 'exclusive', p: 'permits', r: 'shared' };

const NUMBER_LENGTH = 16;

/** The names of keys in etcd under one prefix. */
export class Names {
  readonly base: string;
  readonly #locks: string;

  constructor(
    private readonly prefix: string,
    keyPrefix: string,
  ) {
    this.base = `${prefix}base`;
    this.#locks = `${prefix}lock/${keyPrefix}`;
  }

  /** The first part of all names for a lock's key. As in Redis, half of a surrogate pair is stored as U+FFFD. */
  of(key: string): string {
    return `${this.#locks}${key.toWellFormed()}`;
  }

  fence(etcdLease: string): string {
    return `${this.prefix}fence/${etcdLease}`;
  }

  /** The range of all names for keys that begin with `prefix`. */
  beginningWith(prefix: string): KeyRange {
    const from = this.of(prefix);
    // U+10FFFF is the largest character.
    return [from, `${from}\u{10FFFF}`];
  }

  /** The key of a holder's name; `undefined` for any other name. */
  heldKey(name: string): string | undefined {
    const end = name.indexOf('\0h\0', this.#locks.length);
    return end === -1 ? undefined : name.slice(this.#locks.length, end);
  }
}

/** The message about a key in etcd whose value another program has written. */
export function foreignKey(name: string): string {
  return (
    `the key ${printable(name)} in etcd has a value that is not of this package, and is left as it is; give \`etcd\` ` +
    'another `prefix`, or delete the key if no other program needs it'
  );
}

/** The range of the holders of a key. */
export function holdersOf(key: string): KeyRange {
  return [`${key}\0h\0`, `${key}\0h\x01`];
}

/** The range of the waiters for a key. */
export function queueOf(key: string): KeyRange {
  return [`${key}\0q\0`, `${key}\0q\x01`];
}

/** The range of the holders and the waiters of a key. */
export function viewRange(key: string): KeyRange {
  return [`${key}\0h\0`, `${key}\0q\x01`];
}

/** The ranges of the holders that exclude a lease of this kind in its wanted slot. */
export function rivalsOf(key: string, kind: LockKind, slot: number): readonly KeyRange[] {
  const of = (from: string, to: string): KeyRange => [`${key}\0h\0${from}`, `${key}\0h\0${to}`];
  switch (kind.mode) {
    case 'exclusive':
      return [holdersOf(key)];
    case 'shared':
      return [of('e', 'r')];
    case 'permits': {
      const name = `p${slotName(slot)}`;
      return [of('e', 'p'), of('r', 's'), of(name, `${name}\x7f`)];
    }
  }
}

/** The range of the holders of permits in this slot and in the slots after it. */
export function slotsFrom(key: string, slot: number): KeyRange {
  return [`${key}\0h\0${LETTERS.permits}${slotName(slot)}`, `${key}\0h\0${LETTERS.shared}`];
}

export function holderName(key: string, mode: LockMode, id: string, slot = 0): string {
  return `${key}\0h\0${LETTERS[mode]}${mode === 'permits' ? slotName(slot) : ''}${digitsOf(id)}`;
}

/** The name of a holder after its release, while `minHold` keeps the key. */
export function keptName(name: string): string {
  return `${name}k`;
}

export interface HolderName {
  readonly mode: LockMode;
  readonly slot: number | undefined;
  /** The id in hexadecimal digits. */
  readonly id: string;
  readonly kept: boolean;
}

export function parseHolderName(key: string, name: string): HolderName | undefined {
  const [, letter = '', slot, id = '', kept] =
    /^([epr])(\d{4})?([0-9a-f]{32})(k?)$/.exec(name.slice(key.length + 3)) ?? [];
  const mode = MODES[letter];
  return mode && { mode, id, kept: kept === 'k', slot: slot === undefined ? undefined : Number(slot) };
}

/** @param since - the time of the arrival, in milliseconds since 1970 */
export function entryName(key: string, since: number, waiter: WaiterId): string {
  return `${key}\0q\0${padded(since)}${waiterName(waiter)}`;
}

export function waiterName({ process, number }: WaiterId): string {
  return `${process}:${number}`;
}

/** The waiter of a queue entry. */
export function waiterOfEntry(key: string, name: string): string {
  return name.slice(key.length + 3 + NUMBER_LENGTH);
}

/** Reads the waiter and the time of its arrival from the name of its queue entry. */
export function parseEntryName(key: string, name: string): Pick<KeyWaiter, 'process' | 'number' | 'since'> {
  const time = name.slice(key.length + 3).slice(0, NUMBER_LENGTH);
  const [process = '', number] = waiterOfEntry(key, name).split(':');
  return { process, number: Number(number), since: Number(time) };
}

/** The range of the records of this tick and of later ticks of its schedule. */
export function ticksFrom(key: string, schedule: string, at: number): KeyRange {
  const of = `${key}\0t\0${encodeURIComponent(schedule.toWellFormed())}`;
  return [`${of}\0${padded(at)}`, `${of}\x01`];
}

export function tickName(key: string, schedule: string, at: number): string {
  return ticksFrom(key, schedule, at)[0];
}

export function tickOf(name: string): number {
  return Number(name.slice(-NUMBER_LENGTH));
}

/** Converts a number into a text that sorts like the number. */
export function padded(number: number): string {
  return String(Math.max(0, Math.floor(number))).padStart(NUMBER_LENGTH, '0');
}

function slotName(slot: number): string {
  return String(slot).padStart(4, '0');
}
