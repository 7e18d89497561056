import { ACQUIRE, ACQUIRE_PARTS } from './sql/acquire.js';
import { EXTEND } from './sql/extend.js';
import { FORCE_RELEASE } from './sql/force-release.js';
import type { Procedure } from './sql/procedure.js';
import { QUEUE } from './sql/queue.js';
import { GIVE_UP, RELEASE, SETTLE } from './sql/release.js';
import { SWEEPS } from './sql/sweep.js';
import { TABLES } from './sql/tables.js';
import { TURNS } from './sql/turn.js';
import { WAITING_PROCEDURES } from './sql/waiting.js';

/**
 * Version of the procedures, which is part of their names: it increases with every change of one of them. A process
 * creates the procedures of its version, and leaves those of other versions alone. So processes of two versions work on
 * the same tables while a new version is deployed, and no procedure is missing at any time.
 */
export const SCHEMA_VERSION = 2;

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
  const state = names.in('insert ignore into {state} (one) values (1)');
  return [...tables, ...procedures, state];
}

/**
 * A script for the programs `mysql` and `mariadb`, which creates all tables and procedures that are missing.
 *
 * @param role - a user that gets the rights of an application, and no other rights
 */
export function schemaScript(names: SchemaNames, role?: string): string {
  const statements = schemaStatements(names).map((statement) => `${statement}//\n`);
  const grants = role === undefined ? [] : grantStatements(names, role).map((grant) => `${grant}//\n`);
  return (
    `set session sql_mode = '${SQL_MODE}';\nset names utf8mb4;\ndelimiter //\n\n` +
    `${[...statements, ...grants].join('\n')}\ndelimiter ;\n`
  );
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
  const quoted = (all: readonly string[]): string => all.map((name) => `'${name}'`).join(', ');
  return `select group_concat(concat(kind, ' ', name, ' ', is_ours) separator '\\n') as answer from (
  select 'table' as kind, table_name as name, table_comment = '${OUR_COMMENT}' as is_ours from information_schema.tables
    where table_schema = database() and table_name in (${quoted(names.tables)})
  union all
  select lower(routine_type), routine_name, routine_comment = '${OUR_COMMENT}' from information_schema.routines
    where routine_schema = database() and routine_name in (${quoted(names.procedures)})
) objects`;
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
