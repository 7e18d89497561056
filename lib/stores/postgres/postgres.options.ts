import type { ConnectionOptions } from 'node:tls';
import {
  badNumber,
  badOption,
  badSecret,
  checkOptionNames,
  ESCAPE_PASSWORD,
  hasUnescapedPassword,
} from '../../core/checks.js';
import { DEFAULT_SCHEMA, isIdentifier } from './schema.js';

/** The address of the database, and the schema of the locks. */
export interface PostgresOptions {
  /**
   * A URL such as `postgres://user:password@host:5432/database` of the primary; a standby is refused. If the URL
   * contains a value, the option for the same value does not apply.
   */
  readonly connectionString?: string;

  /** The server, if there is no `connectionString`: a name, an address, or the folder of a Unix socket. */
  readonly host?: string;

  /** @defaultValue 5432 */
  readonly port?: number;

  /** @defaultValue the name of the user */
  readonly database?: string;

  readonly user?: string;

  /**
   * A password, or a function that returns one. Use a function for passwords that expire: it is called for every
   * connection.
   */
  readonly password?: string | (() => string | Promise<string>);

  /** `true`, or options of TLS, such as `{ ca }`. */
  readonly ssl?: boolean | ConnectionOptions;

  /**
   * The schema of the tables and functions, best one for locks alone: start-up refuses a schema that has other tables or
   * functions of their names. Processes exclude each other only with the same schema.
   * @defaultValue 'redlock'
   */
  readonly schema?: string;

  /**
   * A URL for the connection that receives messages for waiters. A pooler that assigns a server connection for each
   * transaction (PgBouncer in transaction mode) delivers no messages, so that waiters have to poll. Give a URL that
   * leads past such a pooler.
   * @defaultValue the `connectionString`
   */
  readonly listenConnectionString?: string;

  /**
   * The `application_name` on the server.
   * @defaultValue 'nestjs-redlock'
   */
  readonly applicationName?: string;
}

const NAMES: readonly (keyof PostgresOptions)[] = [
  'connectionString',
  'host',
  'port',
  'database',
  'user',
  'password',
  'ssl',
  'schema',
  'listenConnectionString',
  'applicationName',
];

const URL_RULE = 'a URL such as postgres://user:password@host:5432/database';

/** @throws TypeError or RangeError naming the option and what is wrong with it, but no value that may contain a password */
export function checkPostgresOptions(options: PostgresOptions): void {
  if (typeof options === 'string')
    throw new TypeError(
      'Expected the options of `postgres` to be an object such as `{ connectionString: url }`, got a string',
    );
  checkOptionNames('postgres', options, NAMES, (name) =>
    name === 'pool' || name === 'client'
      ? 'Give `connectionString`: the store opens its own connections, because locked methods that use up a common pool would ' +
        'wait for themselves'
      : undefined,
  );
  const { connectionString, host, port, password, schema } = options;
  if (connectionString === undefined && host === undefined) {
    throw new TypeError(
      `Expected \`postgres\` to have either \`connectionString\` (${URL_RULE}) or \`host\`, got neither; if the value comes ` +
        'from an environment variable, set the variable',
    );
  }
  checkUrl('connectionString', connectionString);
  checkUrl('listenConnectionString', options.listenConnectionString);
  for (const name of ['host', 'database', 'user', 'applicationName'] as const) {
    const value = options[name];
    if (value !== undefined && (typeof value !== 'string' || value === ''))
      throw badSecret(`\`${name}\``, 'a string that is not empty', value);
  }
  if (port !== undefined && !(Number.isInteger(port) && port >= 1 && port <= 65_535))
    throw typeof port === 'number'
      ? badNumber('port', 'a port, from 1 to 65535', port)
      : badSecret('`port`', 'a port, from 1 to 65535', port);
  if (password !== undefined && typeof password !== 'string' && typeof password !== 'function')
    throw new TypeError(`Expected \`password\` to be a string or a function, got ${typeof password}`);
  if (schema !== undefined && !isIdentifier(schema)) {
    const rule =
      'the name of a schema, of letters, digits and underscores, at most 63, not beginning with a digit';
    // A URL in the wrong variable must not be shown.
    throw typeof schema === 'string' && /^[\w. -]{0,100}$/.test(schema)
      ? badOption('schema', rule, schema)
      : badSecret('`schema`', rule, schema);
  }
}

function checkUrl(option: string, url: unknown): void {
  if (url === undefined) return;
  const refuse = (because: string): never => {
    throw badSecret(`\`${option}\``, URL_RULE, url, because);
  };
  if (typeof url !== 'string') return refuse('');
  if (!/^postgres(ql)?:\/\//.test(url)) refuse(/^\s/.test(url) ? ', which begins with a space' : '');
  if (/[\s\p{Cc}]/u.test(url)) refuse(', which contains a space or a line break');
  if (hasUnescapedPassword(url)) refuse(`, which ${ESCAPE_PASSWORD}`);
  // `URL.canParse` refuses a URL with the folder of a Unix socket as its host.
  if (!URL.canParse(url)) {
    if (!url.includes('%2F')) refuse(', which is no valid URL');
  } else if (!/^\/?[^/]*$/.test(new URL(url).pathname))
    refuse(', which has more than a database after its host');
}

/** The schema of the options, or the default schema. */
export function schemaOf({ schema = DEFAULT_SCHEMA }: PostgresOptions): string {
  return schema;
}
