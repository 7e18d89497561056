import { badOption, checkMilliseconds, checkOptionNames } from '../core/checks.js';

/** Options of a `FencedRegister`. */
export interface FencedRegisterOptions {
  /**
   * Name of the table, with or without a schema: letters, digits and underscores. Upper and lower case differ.
   * @defaultValue `'fencing_tokens'`
   */
  readonly table?: string | undefined;

  /**
   * Milliseconds that a transaction of `FencedRegister.transaction` may idle between two statements before the
   * server ends it. The holder of a transaction that is paused keeps its successor waiting for so long, and no
   * longer. 0 leaves it to the server's `idle_in_transaction_session_timeout`, which is unlimited by default.
   * @defaultValue `10_000`, the default ttl of a lock
   */
  readonly idleTimeout?: number | undefined;
}

const DEFAULTS = { table: 'fencing_tokens', idleTimeout: 10_000 };

// PostgreSQL cuts longer names off without an error.
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/**
 * @returns the options with the table's name quoted
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

/** Names cannot be parameters of a statement, so nothing but a plain name gets into one. */
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
