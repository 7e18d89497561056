import { badOption, checkMilliseconds, checkOptionNames } from '../core/checks.js';

/** Options of a `FencedRegister`. */
export interface FencedRegisterOptions {
  /**
   * Name of the table, with or without a schema: letters, digits and underscores. Upper and lower case differ.
   * @defaultValue `'fencing_tokens'`
   */
  readonly table?: string | undefined;

  /**
   * Milliseconds that a transaction of `FencedRegister.transaction` may idle between two statements before the server
   * ends it. A later holder of the lock waits at most this time for the transaction of a paused process. With 0 the
   * server's `idle_in_transaction_session_timeout` applies, which is unlimited by default.
   * @defaultValue `10_000`, the default ttl of a lock
   */
  readonly idleTimeout?: number | undefined;
}

const DEFAULTS = { table: 'fencing_tokens', idleTimeout: 10_000 };

// Longer names are not allowed, because PostgreSQL shortens them without an error.
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/**
 * @returns the options, with the name of the table in quotation marks
 * @throws TypeError or RangeError that names the option
 */
export function resolveRegisterOptions(
  options: FencedRegisterOptions,
): Readonly<Record<'table', string> & Record<'idleTimeout', number>> {
  checkOptionNames('FencedRegister', options, ['table', 'idleTimeout']);
  const { table = DEFAULTS.table, idleTimeout = DEFAULTS.idleTimeout } = options;
  checkMilliseconds('idleTimeout', idleTimeout, 0);
  return { table: quoted(table), idleTimeout };
}

/** Quotes the name of the table. Names cannot be parameters of a statement, so only a plain name is accepted. */
function quoted(table: unknown): string {
  const parts = typeof table === 'string' ? table.split('.') : [];
  if (parts.length < 1 || parts.length > 2 || !parts.every((part) => IDENTIFIER.test(part))) {
    throw badOption(
      'table',
      'a table name of letters, digits and underscores, at most 63, not beginning with a digit, ' +
        'with or without a schema (`schema.table`)',
      table,
    );
  }
  return parts.map((part) => `"${part}"`).join('.');
}
