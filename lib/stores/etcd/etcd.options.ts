import type { SecureContextOptions } from 'node:tls';
import { badSecret, checkOptionNames } from '../../core/checks.js';

/** The addresses of the cluster, and the login. */
export interface EtcdOptions {
  /**
   * URLs of the members, such as `['http://10.0.0.1:2379', 'http://10.0.0.2:2379']`. All members must belong to one
   * cluster: when a member does not answer, the store uses the next one.
   */
  readonly endpoints: string | readonly string[];

  /**
   * Name of the user, together with `password`, if the cluster has `auth` enabled. The user's role needs to read and
   * write all keys that begin with `prefix`.
   */
  readonly username?: string;

  /**
   * A password, or a function that returns one. Use a function for passwords that change: it is called for each new
   * login, and again if it has not returned after five seconds.
   */
  readonly password?: string | (() => string | Promise<string>);

  /** Certificates and keys for `https://`, such as `{ ca, cert, key }`, as in `tls.createSecureContext` of Node. */
  readonly tls?: SecureContextOptions & {
    readonly rejectUnauthorized?: boolean;
    readonly servername?: string;
  };

  /**
   * The prefix of all keys in etcd. Processes exclude each other only with the same prefix.
   * @defaultValue 'nestjs-redlock/'
   */
  readonly prefix?: string;
}

/** The default prefix of the keys. */
export const DEFAULT_PREFIX = 'nestjs-redlock/';

const NAMES: readonly (keyof EtcdOptions)[] = ['endpoints', 'username', 'password', 'tls', 'prefix'];

const RULE = 'one or more URLs such as http://10.0.0.1:2379 or https://etcd.example:2379, without a path';

/** @throws TypeError naming the option and what is wrong with it, but no value that may contain a password */
export function checkEtcdOptions(options: EtcdOptions): void {
  if (typeof options === 'string')
    throw new TypeError(
      'Expected the options of `etcd` to be an object such as `{ endpoints: [url] }`, got a string',
    );
  checkOptionNames('etcd', options, NAMES, (name) =>
    name === 'hosts' || name === 'nodes' ? 'Give `endpoints`, the URLs of the members' : undefined,
  );
  const { endpoints, username, password, tls, prefix } = options;
  if (endpoints === undefined) {
    throw new TypeError(
      `Expected \`etcd\` to have \`endpoints\`, ${RULE}, got undefined; if the value comes from an environment variable, ` +
        'set the variable',
    );
  }
  const urls = endpointsOf(options);
  if (!Array.isArray(urls) || urls.length === 0) throw badSecret('`endpoints`', RULE, endpoints);
  for (const url of urls) checkUrl(url);
  if (new Set(urls.map((url) => new URL(url).protocol)).size > 1)
    throw new TypeError('Expected `endpoints` to be all http:// or all https://, got both');
  if (tls !== undefined) {
    if (typeof tls !== 'object' || tls === null) throw badSecret('`tls`', 'an object such as { ca }', tls);
    if (urls.some((url) => !url.startsWith('https:')))
      throw new TypeError('Expected `endpoints` to begin with https:// when `tls` is given');
  }
  for (const [name, value] of Object.entries({ username, prefix })) {
    if (value === undefined) continue;
    if (typeof value !== 'string' || value === '' || value.includes('\0'))
      throw badSecret(`\`${name}\``, 'a string that is not empty, without NUL characters', value);
  }
  if (password !== undefined && typeof password !== 'string' && typeof password !== 'function')
    throw new TypeError(`Expected \`password\` to be a string or a function, got ${typeof password}`);
  if ((username === undefined) !== (password === undefined))
    throw new TypeError('Expected `username` and `password` together, got one of them');
}

export function endpointsOf({ endpoints }: EtcdOptions): readonly string[] {
  return typeof endpoints === 'string' ? [endpoints] : endpoints;
}

function checkUrl(url: unknown): void {
  let because = '';
  if (typeof url === 'string' && /^https?:\/\//.test(url) && URL.canParse(url) && !/[\s\p{Cc}]/u.test(url)) {
    const { username, password, pathname, search, hash } = new URL(url);
    if (username !== '' || password !== '')
      throw new TypeError('Expected `endpoints` without user and password; give `username` and `password`');
    if (pathname === '/' && search === '' && hash === '') return;
    because = ' and continues after the host';
  }
  throw badSecret(
    'each of `endpoints`',
    'a URL such as http://10.0.0.1:2379 or https://etcd.example:2379, without a path',
    url,
    because,
  );
}
