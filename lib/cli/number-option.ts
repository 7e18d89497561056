import { UsageError } from './usage-error.js';

/**
 * Reads the number of an option.
 *
 * @returns `undefined` without the option
 * @throws UsageError
 */
export function wholeNumber(option: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < least || !Number.isSafeInteger(value)) {
    throw new UsageError(`Expected ${option} to be a whole number, at least ${least}, got "${text}"`);
  }
  return value;
}
