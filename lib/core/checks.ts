import { inspect } from 'node:util';
import { likelyNames } from './near-names.js';
import { printableText } from './printable.js';

/** Longest delay of `setTimeout`. With a longer delay `setTimeout` calls back immediately. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Milliseconds of each unit in a text such as `'10s'`. */
export const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
};

/**
 * @param or - another accepted value with the word "or" after it, for the message
 * @throws TypeError or RangeError unless `value` is a whole number of milliseconds, at least `least`
 */
export function checkMilliseconds(option: string, value: unknown, least: number, or = ''): void {
  if (Number.isInteger(value) && Number(value) >= least && Number(value) <= LONGEST_TIMER_MS) return;
  const most = Number(value) > LONGEST_TIMER_MS ? `, at most ${LONGEST_TIMER_MS}` : '';
  const refusal = badNumber(option, `${or}a whole number of milliseconds, at least ${least}${most}`, value);
  throw typeof value === 'string' ? new TypeError(`${refusal.message}; ${asNumber(value)}`) : refusal;
}

function asNumber(text: string): string {
  const [, amount = '', unit = ''] = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)\s*$/i.exec(text) ?? [];
  const length = UNITS[unit.toLowerCase()];
  if (length === undefined) return 'give a number, not text';
  return `write ${Math.round(Number(amount) * length)} for ${amount} ${unit.toLowerCase()}`;
}

/** @throws TypeError unless `value` is `true` or `false`. */
export function checkBoolean(option: string, value: unknown): void {
  if (typeof value !== 'boolean') throw badOption(option, '`true` or `false`', value);
}

/**
 * Checks that all given options are known. A property that is `undefined` counts as not given.
 *
 * @param of - the name of the object that has the options, for the message
 * @param remedy - advice about an option that is unknown here, but valid in another place
 * @throws TypeError unless `options` is an object and `known` contains each of its given properties
 */
export function checkOptionNames(
  of: string,
  options: object,
  known: readonly string[],
  remedy?: (name: string) => string | undefined,
): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new TypeError(
      `Expected the options of \`${of}\` to be an object, got ${typeof options === 'string' ? 'a string' : kindOfValue(options)}`,
    );
  for (const name of Object.keys(options)) {
    if (known.includes(name) || (options as Record<string, unknown>)[name] === undefined) continue;
    throw new TypeError(
      `Unknown option \`${name}\` in \`${of}\`. ${remedy?.(name) ?? optionsLike(name, known)}`,
    );
  }
}

/** Advice about an unknown option: the known names that resemble it, or else all known names. */
export function optionsLike(name: string, known: readonly string[]): string {
  const likely = likelyNames(name, known);
  return likely.length > 0 ? `Did you mean ${listed(likely)}?` : `The options are ${listed(known)}`;
}

/** Formats a list of names for messages. */
export function listed(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(', ');
}

/** Makes the error for an option with a bad value. {@link badNumber} is for options that take numbers. */
export function badOption(option: string, rule: string, value: unknown): TypeError {
  return badValue(`\`${option}\``, rule, value);
}

/** Makes the error for a bad value that is no option; {@link badOption} is for options. */
export function badValue(what: string, rule: string, value: unknown): TypeError {
  return new TypeError(`Expected ${what} to be ${rule}, got ${shownValue(value)}`);
}

/** Formats a value for a message on one line, and shortens it. */
function shownValue(value: unknown): string {
  const shown = inspect(value, {
    // An object may contain a password, so only its kind is shown.
    depth: Array.isArray(value) ? 0 : -1,
    compact: true,
    breakLength: Infinity,
    maxStringLength: 100,
    maxArrayLength: 8,
  });
  return printableText(shown.replaceAll(/\s*\n\s*/g, ' '));
}

/**
 * Makes the error for a value that may contain a password, such as a URL. The message describes the value and does not
 * show it: a mask fails for the next mistake in a URL.
 *
 * @param what - the option in backticks, or other words for the value
 * @param because - the mistake in the value, for the end of the message
 */
export function badSecret(what: string, rule: string, value: unknown, because = ''): TypeError {
  return new TypeError(`Expected ${what} to be ${rule}, got ${kindOfValue(value)}${because}`);
}

/** Describes a value that may contain a password. */
export function kindOfValue(value: unknown): string {
  if (typeof value === 'string' && value !== '') {
    const [, scheme] = /^([a-z][a-z+]{1,15}):\/\//.exec(value) ?? [];
    return scheme === undefined ? 'a string without a scheme' : `a string that begins with '${scheme}://'`;
  }
  if (Array.isArray(value)) return value.length === 0 ? '[]' : 'an array';
  if (typeof value === 'function') return 'a function';
  return typeof value === 'object' && value !== null ? 'an object' : inspect(value);
}

/**
 * Finds a URL whose password contains an unescaped character that ends the host, such as `/`. Every parser takes the
 * begin of such a password for the port, and a message would show it as part of the address.
 */
export function hasUnescapedPassword(url: string): boolean {
  const [, authority = '', rest = ''] = /^[a-z+]*:\/\/([^/?#]*)(.*)$/s.exec(url) ?? [];
  return !authority.includes('@') && rest.includes('@');
}

export const ESCAPE_PASSWORD =
  'has an "@" after its host; write special characters of a password as %XX, such as %2F for "/" and %23 for "#"';

/**
 * Makes the error for an option that must be a number: a `RangeError` for a number out of range, a `TypeError` for any
 * other value.
 */
export function badNumber(option: string, rule: string, value: unknown): RangeError | TypeError {
  const refusal = badOption(option, rule, value);
  return typeof value === 'number' ? new RangeError(refusal.message) : refusal;
}
