import { inspect } from 'node:util';

/** The longest delay that `setTimeout` takes; a longer one would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * @param or - what else the option may be, for the message
 * @throws TypeError or RangeError unless `value` is a whole number of milliseconds, at least `least`
 */
export function checkMilliseconds(option: string, value: unknown, least: number, or = ''): void {
  if (Number.isInteger(value) && Number(value) >= least && Number(value) <= LONGEST_TIMER_MS) return;
  const most = Number(value) > LONGEST_TIMER_MS ? `, at most ${LONGEST_TIMER_MS}` : '';
  throw badNumber(option, `${or}a whole number of milliseconds, at least ${least}${most}`, value);
}

/** @throws TypeError unless `value` is `true` or `false`. */
export function checkBoolean(option: string, value: unknown): void {
  if (typeof value !== 'boolean') throw badOption(option, '`true` or `false`', value);
}

/**
 * A property that is `undefined` is not given, also where only others read it.
 *
 * @param of - whose options they are, for the message
 * @param remedy - what to do about an option that is not known here, but elsewhere
 * @throws TypeError unless `options` is an object whose every property that is given is one of `known`
 */
export function checkOptionNames(
  of: string,
  options: object,
  known: readonly string[],
  remedy?: (name: string) => string | undefined,
): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw badValue(`the options of \`${of}\``, 'an object', options);
  for (const name of Object.keys(options)) {
    if (known.includes(name) || (options as Record<string, unknown>)[name] === undefined) continue;
    const rest = remedy?.(name) ?? `The options are ${listed(known)}`;
    throw new TypeError(`Unknown option \`${name}\` in \`${of}\`. ${rest}`);
  }
}

/** Names of options, for messages. */
export function listed(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(', ');
}

/** An option that is to be something other than a number. */
export function badOption(option: string, rule: string, value: unknown): TypeError {
  return badValue(`\`${option}\``, rule, value);
}

/** Like {@link badOption}, for what is not an option. */
export function badValue(what: string, rule: string, value: unknown): TypeError {
  return new TypeError(`Expected ${what} to be ${rule}, got ${inspect(value, { depth: 1 })}`);
}

/** An option that is to be a number: a `RangeError` for a number that is out of range, a `TypeError` for anything else. */
export function badNumber(option: string, rule: string, value: unknown): RangeError | TypeError {
  const refusal = badOption(option, rule, value);
  return typeof value === 'number' ? new RangeError(refusal.message) : refusal;
}
