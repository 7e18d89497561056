import { LONGEST_TIMER_MS, UNITS } from '../core/checks.js';
import { UsageError } from './usage-error.js';

const DAY_MS = 86_400_000;

const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|min|m|h|d))+$/;

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
  for (const [, amount, unit = ''] of parts) sum += Number(amount) * (UNITS[unit] ?? DAY_MS);
  const milliseconds = Math.round(sum);
  if (milliseconds < least)
    throw new UsageError(`Expected ${option} to be at least ${shortest(least)}, got "${text}"`);
  if (milliseconds > LONGEST_TIMER_MS)
    throw new UsageError(`Expected ${option} to be at most 24d, got "${text}"`);
  return milliseconds;
}

function shortest(least: number): string {
  return least % 1_000 === 0 ? `${least / 1_000}s` : `${least}ms`;
}
