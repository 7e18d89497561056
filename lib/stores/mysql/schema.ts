import { ACQUIRE, ACQUIRE_PARTS } from './sql/acquire.js';
import { EXCHANGE } from './sql/exchange.js';
import { EXTEND } from './sql/extend.js';
import { FORCE_RELEASE } from './sql/force-release.js';
import type { Procedure } from './sql/procedure.js';
import { QUEUE } from './sql/queue.js';
import { GIVE_UP, RELEASE, SETTLE } from './sql/release.js';
import { SWEEPS } from './sql/sweep.js';
import { STATE_ROW, TABLES } from './sql/tables.js';
import { TURNS } from './sql/turn.js';
import { WAITING_PROCEDURES } from './sql/waiting.js';

/**
 * Version of the procedures, which is part of their names: it increases with every change of one of them. A process
 * creates the procedures of its version, and leaves those of other versions alone. So processes of two versions work on
 * the same tables while a new version is deployed, and no procedure is missing at any time.
 *
 * The names of tables have no version, because locks in two tables would not exclude each other. So a change of a table can
 * only add a column with a default, which the procedures of earlier versions do not use. The statements for the schema
 * then also need one that adds the column to a table without it, before the procedures. docs/mysql.md says how to remove
 * the procedures of earlier versions.
 */
export const SCHEMA_VERSION = 6;

/** The default beginning of the names of tables and procedures. */
export const DEFAULT_TABLE_PREFIX = 'redlock_';

/** The comment on each table and procedure of this package. Nothing without it is used, changed or dropped. */
const OUR_COMMENT = 'nestjs-redlock';

/**
 * Settings that procedures keep from the session in which they were created. Without strict mode the server would
 * shorten a text that is too long.
 */
export const SQL_MODE = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';

/** A user with a host, such as `app@%`. */
const ROLE = /^([A-Za-z0-9_.-]{1,32})(?:@([A-Za-z0-9_.:%-]{1,255}))?$/;

/** Lower case only: on some systems the names of tables are in lower case. */
const PREFIX = /^[a-z_][a-z0-9_]{0,29}$/;

const PROCEDURES: readonly Procedure[] = [
  ...QUEUE,
  ...[SETTLE, GIVE_UP, RELEASE, EXTEND],
  ...ACQUIRE_PARTS,
  ACQUIRE,
  ...TURNS,
  ...WAITING_PROCEDURES,
  FORCE_RELEASE,
  EXCHANGE,
  ...SWEEPS,
];

/** The names of tables and procedures that begin with one prefix. */
export class SchemaNames {
  constructor(readonly prefix: string = DEFAULT_TABLE_PREFIX) {}

  /** Replaces names in braces, such as `{locks}`, by the names in the database. */
  in(sql: string): string {
    return sql.replaceAll(/\{(\w+)\}/g, (_, name: string) => `\`${this.#of(name)}\``);
  }

  get tables(): string[] {
    return Object.keys(TABLES).map((name) => this.#of(name));
  }

  get procedures(): string[] {
    return PROCEDURES.map(({ name }) => this.#of(name));
  }

  #of(name: string): string {
    return name in TABLES ? `${this.prefix}${name}` : `${this.prefix}${name}_v${SCHEMA_VERSION}`;
  }
}

export function isTablePrefix(prefix: unknown): prefix is string {
  return typeof prefix === 'string' && PREFIX.test(prefix);
}

export function isRole(role: string): boolean {
  return ROLE.test(role);
}

/**
 * Statements that create all tables and procedures that are missing. Several processes may run them at the same time.
 */
export function schemaStatements(names: SchemaNames): string[] {
  const tables = Object.entries(TABLES).map(([name, columns]) =>
    names.in(
      `create table if not exists {${name}} (${columns}\n) engine=innodb row_format=dynamic comment='${OUR_COMMENT}'`,
    ),
  );
  const procedures = PROCEDURES.map(({ name, parameters, body }) =>
    names.in(
      `create procedure if not exists {${name}}(${parameters})\n` +
        `comment '${OUR_COMMENT}' modifies sql data sql security invoker\nproc: begin${body}\nend`,
    ),
  );
  // The procedures come last: a database with all of them has everything.
  return [...tables, names.in(STATE_ROW), ...procedures];
}

/**
 * A script for the programs `mysql` and `mariadb`, which creates all tables and procedures that are missing.
 *
 * @param role - a user that gets the rights of an application, and no other rights
 */
export function schemaScript(names: SchemaNames, role?: string): string {
  const grants = role === undefined ? [] : [NO_NEW_ACCOUNT, ...grantStatements(names, role)];
  const statements = [...refusalOfOthers(names), ...schemaStatements(names), ...grants];
  return (
    `set @redlock_sql_mode = @@session.sql_mode;\nset session sql_mode = '${SQL_MODE}';\nset names utf8mb4;\n` +
    `delimiter //\n\n${statements.map((statement) => `${statement}//\n`).join('\n')}\ndelimiter ;\n` +
    'set session sql_mode = @redlock_sql_mode;\n'
  );
}

/** With this mode `grant` fails for an unknown user. Without it, MariaDB would make an account without a password. */
const NO_NEW_ACCOUNT =
  'set session sql_mode = concat(@@session.sql_mode, ' +
  "if(lower(version()) like '%mariadb%', ',NO_AUTO_CREATE_USER', ''))";

/**
 * Statements that print the objects of others that have names of ours, and stop the script if there are any. Outside a
 * procedure a statement can fail on purpose only by a mistake, such as a subquery with too many rows.
 */
function refusalOfOthers(names: SchemaNames): string[] {
  const others = `from (${objectsSql(names)}) objects where not is_ours`;
  return [
    "select concat('Nothing was changed: the database has objects with names that nestjs-redlock needs, which are not its own: ', " +
      "group_concat(kind, ' ', name separator ', '), '. Give another --table-prefix, or a database for locks alone.') as refused " +
      `${others} having count(*) > 0`,
    `set @redlock_has_only_ours = (select 1 union all select 1 ${others})`,
  ];
}

/** Statements that give a user the rights of an application. */
function grantStatements(names: SchemaNames, role: string): string[] {
  const [, user = '', host = '%'] = ROLE.exec(role) ?? [];
  const to = `'${user}'@'${host}'`;
  return [
    ...names.tables.map((name) => `grant select, insert, update, delete on \`${name}\` to ${to}`),
    ...names.procedures.map((name) => `grant execute on procedure \`${name}\` to ${to}`),
  ];
}

/** The result of {@link schemaDescriptionSql}. */
export interface SchemaDescription {
  /** True if all tables and procedures of this version are there, as far as the user sees them. */
  readonly isComplete: boolean;
  /** Objects with a name that this package needs, which are not its own, such as `table redlock_ticks`. */
  readonly foreign: readonly string[];
}

/** A query for the text that {@link schemaDescriptionOf} reads. The user sees only what it has rights for. */
export function schemaDescriptionSql(names: SchemaNames): string {
  return `select group_concat(concat(kind, ' ', name, ' ', is_ours) separator '\\n') as answer from (${objectsSql(names)}) objects`;
}

/**
 * A query for the objects that have names of ours: `kind`, `name`, and if they are ours. It asks for each table by itself:
 * for a list of names MariaDB opens the definitions of all tables of the database (`explain`: "Scanned 1 database").
 */
function objectsSql(names: SchemaNames): string {
  const tables = names.tables.map(
    (name) => `
  select 'table' as kind, table_name as name, table_comment = '${OUR_COMMENT}' as is_ours from information_schema.tables
    where table_schema = database() and table_name = '${name}'`,
  );
  const procedures = names.procedures.map((name) => `'${name}'`).join(', ');
  const routines = `
  select lower(routine_type), routine_name, routine_comment = '${OUR_COMMENT}' from information_schema.routines
    where routine_schema = database() and routine_name in (${procedures})`;
  return `${[...tables, routines].join('\n  union all')}\n`;
}

export function schemaDescriptionOf(text: string | undefined, names: SchemaNames): SchemaDescription {
  const objects = (text ?? '').split('\n').flatMap((line) => {
    const [kind = '', name, isOurs] = line.split(' ');
    return name === undefined ? [] : [{ kind, name, isOurs: isOurs === '1' }];
  });
  const ours = objects.filter(({ isOurs }) => isOurs);
  return {
    isComplete: ours.length === names.tables.length + names.procedures.length,
    foreign: objects.filter(({ isOurs }) => !isOurs).map(({ kind, name }) => `${kind} ${name}`),
  };
}
