import { UsageError } from './usage-error.js';

/** Milliseconds by the units of a duration. */
const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|min|m|h|d))+$/;

/** The longest timer of Node, about 24 days, in milliseconds. */
export const LONGEST_DURATION_MS = 2 ** 31 - 1;

/**
 * Reads a duration such as `500ms`, `30s` or `1h30m`. A number without a unit is refused: `flock` counts in seconds, and
 * the options of the library in milliseconds.
 *
 * @param least - milliseconds
 * @returns milliseconds; `undefined` without the option
 * @throws UsageError
 */
export function durationOf(option: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined;
  const rule = 'a duration with its unit, such as 500ms, 30s, 5m, 2h or 1h30m';
  if (!DURATION.test(text)) throw new UsageError(`Expected ${option} to be ${rule}, got "${text}"`);
  const parts = text.matchAll(/([\d.]+)([a-z]+)/g);
  let sum = 0;
  for (const [, amount, unit = ''] of parts) sum += Number(amount) * (UNITS[unit] ?? 0);
  const milliseconds = Math.round(sum);
  if (milliseconds < least)
    throw new UsageError(`Expected ${option} to be at least ${shortest(least)}, got "${text}"`);
  if (milliseconds > LONGEST_DURATION_MS)
    throw new UsageError(`Expected ${option} to be at most 24d, got "${text}"`);
  return milliseconds;
}

function shortest(least: number): string {
  return least % 1_000 === 0 ? `${least / 1_000}s` : `${least}ms`;
}
