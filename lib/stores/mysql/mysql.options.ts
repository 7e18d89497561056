import type { ConnectionOptions } from 'node:tls';
import { badSecret, checkOptionNames } from '../../core/checks.js';
import { badName, checkAddress, checkUrl, hasOnlyDatabase } from '../database/address-checks.js';
import { isTablePrefix, SchemaNames } from './schema.js';

/** The address of the database, and the names of the tables. */
export interface MysqlOptions {
  /**
   * A URL such as `mysql://user:password@host:3306/database` of the primary; a read-only server is refused. If the URL
   * contains a value, the option for the same value does not apply. The scheme may also be `mariadb`.
   */
  readonly uri?: string;

  /** The server, if there is no `uri`: a name or an address. */
  readonly host?: string;

  /** @defaultValue 3306 */
  readonly port?: number;

  /** The path of a Unix socket, in place of a host. */
  readonly socketPath?: string;

  /** The database with the tables. Processes exclude each other only with the same database and `tablePrefix`. */
  readonly database?: string;

  readonly user?: string;

  /**
   * A password, or a function that returns one. Use a function for passwords that expire: it is called for every
   * connection, which must be open ten seconds later.
   */
  readonly password?: string | (() => string | Promise<string>);

  /** `true`, or options of TLS, such as `{ ca }`. The certificate of the server is checked. */
  readonly ssl?: boolean | ConnectionOptions;

  /**
   * The beginning of the names of all tables and procedures, of lower-case letters, digits and underscores. Start-up
   * refuses a database in which other tables have these names.
   * @defaultValue 'redlock_'
   */
  readonly tablePrefix?: string;
}

/** The address to which a store connects. */
export interface MysqlAddress {
  readonly host: string;
  readonly port: number;
  readonly socketPath?: string;
  readonly database: string;
  readonly user?: string;
  readonly password?: string | (() => string | Promise<string>);
  readonly ssl?: ConnectionOptions;
}

const NAMES: readonly (keyof MysqlOptions)[] = [
  'uri',
  'host',
  'port',
  'socketPath',
  'database',
  'user',
  'password',
  'ssl',
  'tablePrefix',
];

const SCHEME = /^(mysql|mariadb):\/\//;
const URL_RULE = 'a URL such as mysql://user:password@host:3306/database';
const DEFAULT_PORT = 3_306;

/** @throws TypeError or RangeError naming the option and what is wrong with it, but no value that may contain a password */
export function checkMysqlOptions(options: MysqlOptions): void {
  if (typeof options === 'string')
    throw new TypeError('Expected the options of `mysql` to be an object such as `{ uri }`, got a string');
  checkOptionNames('mysql', options, NAMES, (name) =>
    name === 'pool' || name === 'connection'
      ? 'Give `uri`: the store opens its own connections, because locked methods that use up a common pool would wait ' +
        'for themselves'
      : undefined,
  );
  const { uri, host, socketPath, ssl, tablePrefix } = options;
  if (uri === undefined && host === undefined && socketPath === undefined) {
    throw new TypeError(
      `Expected \`mysql\` to have \`uri\` (${URL_RULE}), \`host\` or \`socketPath\`, got none of them; if the value comes ` +
        'from an environment variable, set the variable',
    );
  }
  checkUrl('uri', uri, SCHEME, URL_RULE, mistakeIn);
  checkAddress(options, ['host', 'socketPath', 'database', 'user']);
  if (ssl !== undefined && typeof ssl !== 'boolean' && (typeof ssl !== 'object' || ssl === null))
    throw badSecret('`ssl`', '`true`, or an object with options of TLS', ssl);
  if (addressOf(options).database === '')
    throw new TypeError(
      `Expected \`mysql\` to have a database: in \`uri\` (${URL_RULE}), or as \`database\``,
    );
  if (tablePrefix !== undefined && !isTablePrefix(tablePrefix))
    throw badName(
      'tablePrefix',
      'lower-case letters, digits and underscores, at most 30, not beginning with a digit',
      tablePrefix,
    );
}

function mistakeIn(uri: string): string | undefined {
  if (!URL.canParse(uri)) return ', which is no valid URL';
  const { search, hostname } = new URL(uri);
  if (hostname === '') return ', which has no host';
  if (!hasOnlyDatabase(uri)) return ', which has more than a database after its host';
  if (search !== '') return ', which has parameters; leave them out, and give options such as `ssl`';
  return isDecodable(uri) ? undefined : ', which has a "%" without two hexadecimal digits; write it as %25';
}

function isDecodable(uri: string): boolean {
  try {
    decodeURIComponent(uri);
    return true;
  } catch {
    return false;
  }
}

/** The address in checked options. */
export function addressOf({ uri, ...options }: MysqlOptions): MysqlAddress {
  const url = uri === undefined ? undefined : new URL(uri);
  const user = decoded(url?.username) ?? options.user;
  const password = decoded(url?.password) ?? options.password;
  const { socketPath, ssl } = options;
  return {
    host: decoded(url?.hostname.replaceAll(/^\[|\]$/g, '')) ?? options.host ?? 'localhost',
    port: Number(decoded(url?.port) ?? options.port ?? DEFAULT_PORT),
    ...(socketPath === undefined || url ? {} : { socketPath }),
    database: decoded(url?.pathname.slice(1)) ?? options.database ?? '',
    ...(user === undefined ? {} : { user }),
    ...(password === undefined ? {} : { password }),
    ...(ssl === undefined || ssl === false ? {} : { ssl: ssl === true ? {} : ssl }),
  };
}

function decoded(part: string | undefined): string | undefined {
  return part === undefined || part === '' ? undefined : decodeURIComponent(part);
}

/** The names of the tables and procedures. */
export function namesOf({ tablePrefix }: MysqlOptions): SchemaNames {
  return new SchemaNames(tablePrefix);
}
