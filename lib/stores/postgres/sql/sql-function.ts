/** A function in the database: applications call it, or only other functions in the database call it. */
export interface EntryPoint {
  /** Name and parameters, in the form of `create function`. */
  readonly signature: string;
  readonly returns: string;
  /** The body of the function, in PL/pgSQL. */
  readonly body: string;
}

/**
 * Longest wait of a function for a row that another transaction has locked, in milliseconds. All statements that lock
 * rows are short, so a longer wait shows that the other transaction hangs.
 */
const LOCK_TIMEOUT_MS = 2_000;

/**
 * Statement that creates or replaces a function for applications. The function runs with the rights of its creator, so
 * that an application needs only the right to call it. The function sets its own search path, so that it cannot use
 * other tables with the same names.
 */
export function entryPointSql({ signature, returns, body }: EntryPoint, schema: string): string {
  return (
    `create or replace function ${signature} returns ${returns} language plpgsql security definer\n` +
    `set search_path = ${schema}, pg_temp set lock_timeout = ${LOCK_TIMEOUT_MS} as $body$${body}$body$;\n`
  );
}

/** Statement that creates or replaces an internal function, which only other functions in the database call. */
export function functionSql({ signature, returns, body }: EntryPoint): string {
  return `create or replace function ${signature} returns ${returns} language plpgsql as $body$${body}$body$;\n`;
}
