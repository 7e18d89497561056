import type { LockMode } from '../../lib/core/lock-mode.js';

// The judge and the register use this module to decide which holders exclude each other. It uses nothing of the library
// but the names of the modes.

/** The mode, the slot and the token with which a client holds a key. */
export interface Access {
  readonly mode: LockMode;
  /** Set only for permits. */
  readonly slot?: number | undefined;
  readonly token: number;
}

/** Returns true if two holders with these accesses must not hold a key at the same time. */
export function excludes(one: Access, other: Access): boolean {
  if (one.mode === 'exclusive' || one.mode !== other.mode) return true;
  return one.mode === 'permits' && one.slot === other.slot;
}

/** Names the part of a key that an access uses. All readers share one part; each slot is a part. */
export function partOf({ mode, slot }: Access): string {
  return mode === 'permits' ? `slot ${slot}` : mode;
}

/** The report of the register, with one entry for each key. */
export type RegisterReport = readonly KeyReport[];

export interface KeyReport {
  readonly key: string;
  /** Accepted reads and writes, in the order in which the register accepted them. */
  readonly accesses: readonly Access[];
  readonly parts: readonly PartReport[];
}

export interface PartReport {
  readonly name: string;
  /** Number of accepted writes. */
  readonly accepted: number;
  /** Value of the counter. A writer adds one to the value that it read. A value below `accepted` shows a lost write. */
  readonly counter: number;
}
