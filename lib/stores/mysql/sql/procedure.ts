/** A stored procedure, with names of tables and procedures in braces, such as `{locks}`. */
export interface Procedure {
  readonly name: string;
  /** The parameters, in the form of `create procedure`. */
  readonly parameters: string;
  /** The declarations and statements between `begin` and `end`. */
  readonly body: string;
}

const ASCII = 'character set ascii collate ascii_bin';
export const UTF8 = 'character set utf8mb4 collate utf8mb4_bin';

// The types of columns, parameters and variables. Each has its character set: that of the database may be another one.

/** A key in UTF-8. As bytes, `a`, `A`, `á` and `a ` are four keys. */
export const KEY = 'varbinary(2048)';
/** An id of a lease, or the name of a waiter or of a process. */
export const ID = `varchar(64) ${ASCII}`;
export const MODE = `varchar(9) ${ASCII}`;
export const STATE = `varchar(4) ${ASCII}`;
/** Characters of an owner's name that are stored. */
export const OWNER_LENGTH = 255;
export const OWNER = `varchar(${OWNER_LENGTH}) ${UTF8}`;
export const SCHEDULE = 'varbinary(900)';
export const TEXT = `longtext ${UTF8}`;
/** JSON. MySQL reads the text once, and not in each statement. On MariaDB it is the same as {@link TEXT}. */
export const JSON_TEXT = 'json';

/** The server's time, in microseconds since 1970. Each statement of a procedure reads the clock again. */
export const NOW = `timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))`;

/** A time in the unit of {@link NOW}. */
export const inMicros = (milliseconds: number): number => milliseconds * 1_000;

/** Expression for the element of a JSON array of keys. */
export function keyAt(keys: string, index: string): string {
  return `json_unquote(json_extract(${keys}, concat('$[', ${index}, ']')))`;
}

/** Expression that is true if holders in these two modes can hold a key at the same time. */
export function together(one: string, other: string): string {
  return `(${one} = ${other} and ${one} <> 'exclusive')`;
}

/**
 * The rows of a JSON array of keys, as `keys_.k`.
 *
 * A `straight_join` with a table must follow, so that the server reads the array first: with few rows in the table the
 * optimizer would read the whole table, and lock all its rows.
 */
export function keysOf(json: string): string {
  return `json_table(${json}, '$[*]' columns (i for ordinality, k varchar(2048) ${UTF8} path '$')) keys_`;
}

/**
 * Follows a table in a join. While a table has few rows, the optimizer would otherwise read all of them, and so wait for rows
 * of other keys that others have locked.
 */
export const BY_PRIMARY = 'force index (primary)';

/**
 * The beginning of a procedure for applications: a transaction of its own. The server itself rolls back after an error,
 * whatever becomes of the client. Inside a transaction of the caller the procedure fails, so that no rollback of the
 * caller can undo a lock. With READ COMMITTED a statement that waited for a row reads its present state.
 *
 * A query in `set` or `if` locks the rows that it reads until the commit, and waits for rows that others have locked. So such
 * queries only read rows of keys that the procedure has locked already; others are of the form `select ... into`.
 *
 * A server that became read-only grants nothing, also to a user for whom it writes: its replica may be the primary now.
 * The error is that of the server itself.
 */
export const BEGIN = `
  declare exit handler for sqlexception
  begin
    rollback;
    resignal;
  end;
  if cast(@@global.read_only as char) not in ('0', 'OFF') then
    signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'the server is read_only, as a replica is';
  end if;
  set transaction isolation level read committed;
  start transaction;`;
