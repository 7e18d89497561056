/** A function of the database that applications call; the other functions are called by these. */
export interface EntryPoint {
  /** Name and parameters, as they follow `create function`. */
  readonly signature: string;
  readonly returns: string;
  /** In PL/pgSQL. */
  readonly body: string;
}

/**
 * Milliseconds that a function waits for a row locked by another transaction. Only statements as short as these lock
 * the rows, so a longer lock shows that its owner hangs.
 */
const LOCK_TIMEOUT_MS = 2_000;

/**
 * Creates or replaces the function. It runs with the rights of its creator, so that an application needs only the right
 * to call it. It has a search path of its own, so that nobody can put other tables before these.
 */
export function entryPointSql({ signature, returns, body }: EntryPoint, schema: string): string {
  return (
    `create or replace function ${signature} returns ${returns} language plpgsql security definer\n` +
    `set search_path = ${schema}, pg_temp set lock_timeout = ${LOCK_TIMEOUT_MS} as $body$${body}$body$;\n`
  );
}

/** Creates or replaces a function that only entry points call. */
export function functionSql({ signature, returns, body }: EntryPoint): string {
  return `create or replace function ${signature} returns ${returns} language plpgsql as $body$${body}$body$;\n`;
}
