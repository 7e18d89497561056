/** The comment on each table and function of this package. Nothing without it is changed, emptied or dropped. */
export const OUR_COMMENT = 'nestjs-redlock';

/** The tables of the schema versions 1 to 5, which have no {@link OUR_COMMENT}, with their columns. */
const TABLES_WITHOUT_COMMENT: Readonly<Record<string, readonly string[]>> = {
  locks: [
    'key text',
    'mode text',
    'state text',
    'id text',
    'owner text',
    'since bigint',
    'token bigint',
    'ends timestamptz',
    'ended text',
    'permits integer',
    'floor bigint',
    'waited boolean',
    'turn text',
    'turn_ends timestamptz',
    'mark text',
    'mark_mode text',
    'mark_owner text',
    'mark_came timestamptz',
    'mark_ends timestamptz',
  ],
  holders: [
    'key text',
    'id text',
    'owner text',
    'since bigint',
    'token bigint',
    'slot integer',
    'kept boolean',
    'ends timestamptz',
  ],
  slots: ['key text', 'slot integer', 'token bigint'],
  waiters: [
    'key text',
    'waiter text',
    'channel text',
    'mode text',
    'owner text',
    'came timestamptz',
    'seen timestamptz',
  ],
  ticks: ['key text', 'schedule text', 'tick bigint', 'owner text', 'ends timestamptz'],
  probe: ['one boolean', 'written timestamptz'],
};

/** The result of {@link describeSchema}. */
export interface SchemaDescription {
  /** The version of the schema; null if it has no tables and functions of this package. */
  readonly version: number | null;
  /** True if the role may call the functions. */
  readonly usable: boolean;
  /** Objects with a name that this package needs, which are not its own, such as `table ticks`. */
  readonly foreign: readonly string[];
}

/**
 * A query for a {@link SchemaDescription}, as JSON. Needs no rights. Reads the source of the function `version` and does
 * not call it, because it may be a function of the application.
 *
 * Without the comment, the tables and functions are ours in a schema of version 1 to 5. Such a schema has a function
 * `version`, a function `turn`, and a table `locks` with the exact columns. Each table there must have the exact
 * columns: those versions took over any table of the same name.
 *
 * @param tables - names of all tables
 * @param functions - all functions with the types of their parameters, such as `turn(text[], jsonb)`
 */
export function describeSchema(
  schema: string,
  tables: readonly string[],
  functions: readonly string[],
): string {
  const signatures = functions.map(longNames);
  const names = signatures.map((signature) => signature.replace(/\(.*/, ''));
  const shapes = Object.entries(TABLES_WITHOUT_COMMENT).map(
    ([name, columns]) => `('${name}', '${longNames(columns.join(', '))}')`,
  );
  return `with relations as (
  select c.relname::text as name, c.relkind = 'r' and obj_description(c.oid, 'pg_class') = '${OUR_COMMENT}' as is_marked,
    c.relkind = 'r' and (
      select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum) from pg_attribute
      where attrelid = c.oid and attnum > 0 and not attisdropped
    ) = shape.columns as is_alike
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
    left join (values ${shapes.join(', ')}) as shape (name, columns) on shape.name = c.relname
  where n.nspname = '${schema}' and c.relname in (${quoted(tables)})
), types as (
  select t.typname::text as name from pg_type t join pg_namespace n on n.oid = t.typnamespace
  where n.nspname = '${schema}' and t.typname in (${quoted(tables)}) and t.typrelid = 0 and t.typcategory <> 'A'
), functions as (
  select p.oid, p.proname || '(' || oidvectortypes(p.proargtypes) || ')' as signature, p.prosrc as source,
    obj_description(p.oid, 'pg_proc') is not distinct from '${OUR_COMMENT}' as is_marked
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = '${schema}' and p.proname in (${quoted(names)})
), unmarked as (
  select exists (select from functions where signature = 'version()' and source ~ '^select [1-5]$')
    and exists (select from functions where signature = 'turn(text[], jsonb)')
    and exists (select from relations where name = 'locks' and is_alike) as are_ours
), known as (
  select functions.*, is_marked or (are_ours and signature in (${quoted(signatures)})) as is_ours from functions, unmarked
)
select json_build_object(
  'version', (select substring(source from '^select (\\d+)$')::integer from known where signature = 'version()' and is_ours),
  'usable', has_schema_privilege(n.oid, 'usage')
    and (select has_function_privilege(oid, 'execute') from known where signature = 'version()'),
  'foreign', array(
    select 'table or view ' || name from relations, unmarked where is_marked is not true and not (are_ours and is_alike is true)
    union all select 'type ' || name from types
    union all select 'function ' || signature from known where not is_ours
    order by 1
  )
)
from (values ('${schema}')) as wanted (name) left join pg_namespace n on n.nspname = wanted.name`;
}

/** The names of types as PostgreSQL prints them. */
function longNames(text: string): string {
  return text.replaceAll('timestamptz', 'timestamp with time zone');
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `'${name}'`).join(', ');
}

/**
 * Statements that set the comment.
 *
 * @param schema - the schema in quotation marks; without it, `version()` would be that of PostgreSQL
 */
export function commentSql(schema: string, tables: readonly string[], functions: readonly string[]): string {
  const objects = [
    ...tables.map((name) => `table ${schema}.${name}`),
    ...functions.map((signature) => `function ${schema}.${signature}`),
  ];
  return objects.map((object) => `comment on ${object} is '${OUR_COMMENT}';\n`).join('');
}
