import type { LockHandle } from '../../../lib/core/lock-handle.js';

/** A lock that a call returned at the time `since`; the call was made at the time `called`. */
interface Returned {
  readonly lock: LockHandle;
  readonly called: number;
  readonly since: number;
}

/** The token of a lock that a call returned, at the time `at`. */
interface Token {
  readonly at: number;
  readonly token: number;
  readonly mode: LockHandle['mode'];
  readonly slot: number | undefined;
}

/** Knows the fencing tokens of the locks that calls have returned (J2, J3). */
export class Tokens {
  readonly #ofKeys = new Map<string, Token[]>();

  /**
   * @param overlap - `true` in a world in which two locks can be held at a time: then only locks count that were returned
   * before the call was made
   */
  constructor(private readonly overlap: boolean) {}

  /** Adds the token of a lock. Returns the largest one that must be smaller than it; 0 for none. */
  add({ lock: { mode, fencingToken: token }, called, since }: Returned, key: string, slot?: number): number {
    const before = this.#ofKeys.get(key) ?? [];
    const counts = (other: Token): boolean =>
      (!this.overlap || other.at < called) &&
      !(mode === 'shared' && other.mode === 'shared') &&
      (slot === undefined || other.slot === undefined || other.slot === slot);
    let floor = 0;
    for (const other of before) if (counts(other)) floor = Math.max(floor, other.token);
    const added = { at: since, token, mode, slot };
    const isLater = (other: Token): boolean =>
      other.mode === mode && other.slot === slot && other.token <= token && !this.overlap;
    this.#ofKeys.set(key, [...before.filter((other) => !isLater(other)), added]);
    return floor;
  }
}
