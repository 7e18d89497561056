import { elapsedSince, type Instant } from '../../core/clock.js';

/** When something began, and how many milliseconds it lasts. */
export interface Life {
  began: Instant;
  ttl: number;
}

/** Milliseconds that are left of it; negative since it has ended. */
export function remainingOf({ began, ttl }: Life): number {
  return ttl - elapsedSince(began);
}
