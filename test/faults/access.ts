import type { LockMode } from '../../lib/core/lock-mode.js';

// Who excludes whom, as the judge and the register see it; of the library they know the names of the modes.

/** How somebody holds a key, and with which token. */
export interface Access {
  readonly mode: LockMode;
  /** Only with permits. */
  readonly slot?: number | undefined;
  readonly token: number;
}

/** Whether these two must not hold a key at the same time. */
export function excludes(one: Access, other: Access): boolean {
  if (one.mode === 'exclusive' || one.mode !== other.mode) return true;
  return one.mode === 'permits' && one.slot === other.slot;
}

/** Names the group of an access. All readers are one group; each slot is a group. */
export function partOf({ mode, slot }: Access): string {
  return mode === 'permits' ? `slot ${slot}` : mode;
}

/** What the register says of itself, for each key. */
export type RegisterReport = readonly KeyReport[];

export interface KeyReport {
  readonly key: string;
  /** What it accepted, in its order. */
  readonly accesses: readonly Access[];
  readonly parts: readonly PartReport[];
}

export interface PartReport {
  readonly name: string;
  /** Writes that it accepted. */
  readonly accepted: number;
  /** What it counts to; each accepted write was meant to add one to what its writer had read. */
  readonly counter: number;
}
