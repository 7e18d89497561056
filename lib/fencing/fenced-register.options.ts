import { badOption, checkMilliseconds, checkOptionNames } from '../core/checks.js';

/** Options of a `FencedRegister` or a `MysqlFencedRegister`. */
export interface FencedRegisterOptions {
  /**
   * Name of the table, with or without a schema (on MySQL: a database): letters, digits and underscores. Upper and lower
   * case differ, on MySQL as its `lower_case_table_names` says.
   * @defaultValue `'fencing_tokens'`
   */
  readonly table?: string | undefined;

  /**
   * Milliseconds that a transaction of `transaction` may idle between two statements before the server ends it. A later
   * holder of the lock waits at most this time for the transaction of a paused process. With 0 the setting of the
   * session applies: in PostgreSQL `idle_in_transaction_session_timeout`, which is unlimited by default; in MySQL
   * `wait_timeout`, which is eight hours by default. MySQL counts whole seconds, so the time is rounded up there.
   * @defaultValue `10_000`, the default ttl of a lock
   */
  readonly idleTimeout?: number | undefined;
}

const DEFAULTS = { table: 'fencing_tokens', idleTimeout: 10_000 };

/** Properties of a database that a register depends on. */
export interface RegisterDialect {
  /** The name of the class, for errors. */
  readonly owner: string;
  /** The quotation mark for names. */
  readonly mark: '"' | '`';
  /** Largest number of characters in the name of a table. */
  readonly longest: number;
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * @returns the options, with the name of the table in quotation marks
 * @throws TypeError or RangeError that names the option
 */
export function resolveRegisterOptions(
  options: FencedRegisterOptions,
  dialect: RegisterDialect,
): Readonly<Record<'table', string> & Record<'idleTimeout', number>> {
  checkOptionNames(dialect.owner, options, ['table', 'idleTimeout']);
  const { table = DEFAULTS.table, idleTimeout = DEFAULTS.idleTimeout } = options;
  checkMilliseconds('idleTimeout', idleTimeout, 0);
  return { table: quoted(table, dialect), idleTimeout };
}

/** Quotes the name of the table. Names cannot be parameters of a statement, so only a plain name is accepted. */
function quoted(table: unknown, { mark, longest }: RegisterDialect): string {
  const parts = typeof table === 'string' ? table.split('.') : [];
  const isPlain = (part: string): boolean => part.length <= longest && IDENTIFIER.test(part);
  if (parts.length < 1 || parts.length > 2 || !parts.every(isPlain)) {
    throw badOption(
      'table',
      `a table name of letters, digits and underscores, at most ${longest}, not beginning with a digit, ` +
        'with or without a schema (`schema.table`)',
      table,
    );
  }
  return parts.map((part) => `${mark}${part}${mark}`).join('.');
}

/**
 * The definition of a column with a token. It refuses numbers above 2^53 - 1: such a number would exclude all real
 * tokens, and JavaScript cannot represent it exactly.
 */
export function tokenColumn(name: string): string {
  return `${name} bigint not null default 0 check (${name} between 0 and ${Number.MAX_SAFE_INTEGER})`;
}
