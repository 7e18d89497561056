import type { ConnectionOptions } from 'node:tls';
import { checkOptionNames } from '../../core/checks.js';
import { badName, checkAddress, checkUrl, hasOnlyDatabase } from '../database/address-checks.js';
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

const SCHEME = /^postgres(ql)?:\/\//;
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
  const { connectionString, listenConnectionString, host, schema } = options;
  if (connectionString === undefined && host === undefined) {
    throw new TypeError(
      `Expected \`postgres\` to have either \`connectionString\` (${URL_RULE}) or \`host\`, got neither; if the value comes ` +
        'from an environment variable, set the variable',
    );
  }
  checkUrl('connectionString', connectionString, SCHEME, URL_RULE, mistakeIn);
  checkUrl('listenConnectionString', listenConnectionString, SCHEME, URL_RULE, mistakeIn);
  checkAddress(options, ['host', 'database', 'user', 'applicationName']);
  if (schema !== undefined && !isIdentifier(schema))
    throw badName(
      'schema',
      'the name of a schema, of letters, digits and underscores, at most 63, not beginning with a digit',
      schema,
    );
}

function mistakeIn(url: string): string | undefined {
  // `URL.canParse` refuses a URL with the folder of a Unix socket as its host.
  if (!URL.canParse(url)) return url.includes('%2F') ? undefined : ', which is no valid URL';
  return hasOnlyDatabase(url) ? undefined : ', which has more than a database after its host';
}

/** The schema of the options, or the default schema. */
export function schemaOf({ schema = DEFAULT_SCHEMA }: PostgresOptions): string {
  return schema;
}
