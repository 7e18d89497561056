import { ACQUIRE, ACQUIRE_PARTS } from './sql/acquire.js';
import { EXCHANGE } from './sql/exchange.js';
import { EXTEND } from './sql/extend.js';
import { TRY_TO_WRITE } from './sql/fitness.js';
import { FORCE_RELEASE } from './sql/force-release.js';
import { LEAVE } from './sql/leave.js';
import { BLOCKED, READ, SCAN, SCAN_PAGE, WAITING } from './sql/look.js';
import { HOLD_BACK, LET_PASS } from './sql/marks.js';
import { describeSchema, commentSql } from './sql/ownership.js';
import { QUEUE } from './sql/queue.js';
import { GIVE_UP, RELEASE, SETTLE } from './sql/release.js';
import { type EntryPoint, entryPointSql, functionSql } from './sql/sql-function.js';
import { SWEEPS } from './sql/sweep.js';
import { TABLE_NAMES, TABLES } from './sql/tables.js';
import { TURN } from './sql/turn.js';

/**
 * Version of the schema. It increases with every change of the result of {@link schemaSql}. A schema with a larger
 * version works with all earlier versions of this package.
 */
export const SCHEMA_VERSION = 11;

/** The default schema. */
export const DEFAULT_SCHEMA = 'redlock';

const ENTRY_POINTS: readonly EntryPoint[] = [
  TURN,
  LEAVE,
  HOLD_BACK,
  LET_PASS,
  READ,
  SCAN,
  BLOCKED,
  SCAN_PAGE,
  WAITING,
  FORCE_RELEASE,
  EXCHANGE,
  ...SWEEPS,
  TRY_TO_WRITE,
];

const PARTS: readonly EntryPoint[] = [...QUEUE, SETTLE, GIVE_UP, ...ACQUIRE_PARTS, ACQUIRE, EXTEND, RELEASE];

const VERSION = 'version()';

/** The functions for applications, in the form that a grant needs. */
const GRANTED = [...ENTRY_POINTS.map(({ signature }) => withoutNames(signature)), VERSION];

const ALL_FUNCTIONS = [...PARTS.map(({ signature }) => withoutNames(signature)), ...GRANTED];

/** Longer names are not allowed, because PostgreSQL shortens them without an error. */
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/** `true` for a plain name, which is safe in quotation marks: a name cannot be a parameter of a statement. */
export function isIdentifier(name: unknown): name is string {
  return typeof name === 'string' && IDENTIFIER.test(name);
}

export function quotedIdentifier(name: string): string {
  return `"${name}"`;
}

/**
 * Statements that create the schema with all its contents, or update it; without effect if it is up to date. They are
 * one transaction, and only one such transaction runs at a time: two concurrent `create ... if not exists` or `create
 * or replace` can fail.
 *
 * @param role - a role that gets the rights of an application, and no other rights
 */
export function schemaSql(schema: string, role?: string): string {
  const name = quotedIdentifier(schema);
  const grants =
    role === undefined
      ? ''
      : `grant usage on schema ${name} to ${quotedIdentifier(role)};\n` +
        GRANTED.map(
          (signature) => `grant execute on function ${name}.${signature} to ${quotedIdentifier(role)};\n`,
        ).join('');
  return `begin;
select pg_advisory_xact_lock(hashtextextended('nestjs-redlock ${schema}', 0));
do $$ begin
  if not exists (select from pg_namespace where nspname = '${schema}') then
    create schema ${name};
  end if;
end $$;
${refusal(schema)}
set local search_path = ${name}, pg_temp;
${TABLES}
${DROPPED}
${PARTS.map(functionSql).join('\n')}
${ENTRY_POINTS.map((entry) => entryPointSql(entry, name)).join('\n')}
create or replace function ${VERSION} returns integer language sql immutable as 'select ${SCHEMA_VERSION}';
${ALL_FUNCTIONS.map((signature) => `revoke all on function ${name}.${signature} from public;\n`).join('')}
${commentSql(name, TABLE_NAMES, ALL_FUNCTIONS)}
${keptGrants(name)}
${grants}commit;
`;
}

/**
 * Drops functions of versions before 3 that had another result type: `create or replace` cannot change the result type.
 */
const DROPPED = `do $$ begin
  if exists (
    select from pg_proc
    where oid = to_regprocedure('hold_back(text[], text, text, text, double precision)') and prorettype = 'void'::regtype
  ) then
    drop function hold_back(text[], text, text, text, double precision);
  end if;
end $$;`;

/**
 * Gives each role that may call the functions of the earlier schema the right to call all functions. An update adds
 * functions, or drops functions and creates them again. Without these grants, an application could lack the right to
 * one function without notice.
 */
function keptGrants(schema: string): string {
  const signatures = GRANTED.map((signature) => `'${schema}.${signature}'`);
  return `do $$
declare
  allowed regrole;
  signature text;
begin
  for allowed in
    select grantee::regrole from pg_proc, aclexplode(proacl)
    where oid = to_regprocedure('${schema}.${VERSION}') and privilege_type = 'EXECUTE' and grantee not in (0, proowner)
  loop
    foreach signature in array array[${signatures.join(', ')}] loop
      execute format('grant execute on function %s to %s', signature, allowed);
    end loop;
  end loop;
end $$;`;
}

/** Statement for a {@link SchemaDescription} of a schema, as JSON. */
export function schemaDescriptionSql(schema: string): string {
  return describeSchema(schema, TABLE_NAMES, ALL_FUNCTIONS);
}

/** The reason why a schema with these foreign objects cannot be used, and the remedy. */
export function foreignBecause(schema: string, objects: string): string {
  return (
    `the schema ${schema} has objects with names that nestjs-redlock needs, which are not its own: ${objects}. ` +
    'Give another `schema`, one for locks alone'
  );
}

/**
 * Statement that fails if the schema has a table or function that this package needs and that is not its own: `create
 * table if not exists` would take over the table, and `create or replace` would overwrite the function.
 */
function refusal(schema: string): string {
  return `do $$
declare
  others text;
begin
  select string_agg(value, ', ') into others
    from json_array_elements_text((${schemaDescriptionSql(schema)}) -> 'foreign');
  if others is not null then
    raise exception '${foreignBecause(schema, '%')}', others;
  end if;
end $$;`;
}

/** The form of a signature in a grant: `scan(text, integer)` for `scan(prefix text, page integer)`. */
function withoutNames(signature: string): string {
  return signature.replaceAll(/([(,]\s*)\w+ /g, '$1');
}
