/** A function of the database that applications call; the others are called by these. */
export interface EntryPoint {
  /** Name and parameters, as they follow `create function`. */
  readonly signature: string;
  readonly returns: string;
  /** In PL/pgSQL. */
  readonly body: string;
}

/**
 * How long one of them waits for a row that somebody else has locked, in milliseconds. Only statements as short as these lock
 * them, so whoever has one for longer hangs.
 */
const LOCK_TIMEOUT_MS = 2_000;

/**
 * Creates or replaces it. It runs with the rights of who created it, so that an application needs none but to call it; and
 * with a search path of its own, so that nobody puts other tables before these.
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
