import { elapsedSince, type Instant } from '../../core/clock.js';

/** A start and a duration in milliseconds. */
export interface Life {
  began: Instant;
  ttl: number;
}

/** Milliseconds that are left; negative after the end. */
export function remainingOf({ began, ttl }: Life): number {
  return ttl - elapsedSince(began);
}
