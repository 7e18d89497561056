import type { Holder } from '../core/ports.js';

/** With fewer leases than this, the removal of old entries is not worth its cost. */
const LEAST_SWEPT = 1_000;

/**
 * Leases that the queue node stores, and that a quorum of the other nodes does not store. Such a lease holds no lock: its
 * process was killed during the acquisition, or its release did not reach the queue node. Until its end the refusal of
 * the queue node says nothing about the other nodes.
 *
 * An entry that is wrong costs only requests: the attempt asks all nodes.
 */
export class Outvoted {
  /** The ends of the leases, on the clock of `performance.now()`. */
  readonly #ends = new Map<string, number>();
  #sweepAt = LEAST_SWEPT;

  note(holders: readonly Holder[]): void {
    if (this.#ends.size >= this.#sweepAt) this.#sweep();
    const now = performance.now();
    for (const { id, remaining } of holders) this.#ends.set(id, now + remaining);
  }

  /** Forgets leases that hold a lock after all. */
  forget(holders: readonly Holder[]): void {
    if (this.#ends.size > 0) for (const { id } of holders) this.#ends.delete(id);
  }

  /** `true` if one of these holders is known to hold no lock. */
  hasAny(holders: readonly Holder[]): boolean {
    return this.#ends.size > 0 && holders.some(({ id }) => (this.#ends.get(id) ?? 0) > performance.now());
  }

  #sweep(): void {
    const now = performance.now();
    for (const [id, end] of this.#ends) if (end <= now) this.#ends.delete(id);
    this.#sweepAt = Math.max(LEAST_SWEPT, 2 * this.#ends.size);
  }
}
