import { badNumber, badOption, badSecret, ESCAPE_PASSWORD, hasUnescapedPassword } from '../../core/checks.js';

/** The options of a database that are checked alike. */
export interface AddressOptions {
  readonly port?: unknown;
  readonly password?: unknown;
}

/**
 * Checks the options of an address, except for its URLs.
 *
 * @param texts - the options that take a text
 * @throws TypeError or RangeError naming the option and what is wrong with it, but no value that may contain a password
 */
export function checkAddress<Options extends AddressOptions>(
  options: Options,
  texts: readonly (keyof Options & string)[],
): void {
  for (const name of texts) {
    const value: unknown = options[name];
    if (value !== undefined && (typeof value !== 'string' || value === ''))
      throw badSecret(`\`${name}\``, 'a string that is not empty', value);
  }
  const { port, password } = options;
  if (port !== undefined && !(Number.isInteger(port) && Number(port) >= 1 && Number(port) <= 65_535))
    throw typeof port === 'number'
      ? badNumber('port', 'a port, from 1 to 65535', port)
      : badSecret('`port`', 'a port, from 1 to 65535', port);
  if (password !== undefined && typeof password !== 'string' && typeof password !== 'function')
    throw new TypeError(`Expected \`password\` to be a string or a function, got ${typeof password}`);
}

/**
 * Checks the URL of a database.
 *
 * @param rule - the rule of the URL, for the message
 * @param mistakeIn - finds a further mistake in the URL
 * @throws TypeError naming the option and the mistake, but not the URL, because it may contain a password
 */
export function checkUrl(
  option: string,
  url: unknown,
  scheme: RegExp,
  rule: string,
  mistakeIn: (url: string) => string | undefined,
): void {
  if (url === undefined) return;
  const mistake = typeof url === 'string' ? (textMistakeIn(url, scheme) ?? mistakeIn(url)) : '';
  if (mistake !== undefined) throw badSecret(`\`${option}\``, rule, url, mistake);
}

function textMistakeIn(url: string, scheme: RegExp): string | undefined {
  if (!scheme.test(url)) return /^\s/.test(url) ? ', which begins with a space' : '';
  if (/[\s\p{Cc}]/u.test(url)) return ', which contains a space or a line break';
  return hasUnescapedPassword(url) ? `, which ${ESCAPE_PASSWORD}` : undefined;
}

/** `true` if a URL has nothing but a database after its host. */
export function hasOnlyDatabase(url: string): boolean {
  return /^\/?[^/]*$/.test(new URL(url).pathname);
}

/** Makes the error for a name that is not valid. A URL in the wrong variable is not shown. */
export function badName(option: string, rule: string, value: unknown): TypeError {
  return typeof value === 'string' && /^[\w. -]{0,100}$/.test(value)
    ? badOption(option, rule, value)
    : badSecret(`\`${option}\``, rule, value);
}
