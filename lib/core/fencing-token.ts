import { countOf } from '../redlock/quorum.js';

/** Steps of a fencing counter for each second of the clock that it follows. */
const STEPS_PER_SECOND = 2 ** 20;

/** How long a counter is kept after its last use, in milliseconds. */
export const COUNTER_LIFE_MS = 86_400_000;

/** How far ahead of the latest clock new counters start, so that the nodes agree on them though messages take time. */
const AHEAD_MS = 50;

/** The fencing counter for a time in milliseconds since 1970; below 2^53 until about the year 2242. */
export function counterAt(time: number): number {
  return Math.floor((time * STEPS_PER_SECOND) / 1_000);
}

/** What all nodes are asked to start a missing counter at, given what is known of their clocks. */
export function seedFor(times: readonly (number | undefined)[]): number {
  const known = times.filter((time) => time !== undefined);
  return counterAt(Math.max(...(known.length > 0 ? known : [Date.now()])) + AHEAD_MS);
}

/** The token that a grant by these counters can have, and how many of the counters are there already. */
export function tokenOf(counters: readonly number[]): { readonly token: number; readonly agreeing: number } {
  const token = Math.max(...counters);
  return { token, agreeing: countOf(counters, (counter) => counter === token) };
}
