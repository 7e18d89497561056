import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { Client } from 'pg';
import { UnfitStoreError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { SCHEMA_VERSION, schemaSql } from '../../../lib/stores/postgres/schema.js';
import { formerSchemaSql } from '../../fixtures/former-postgres-schema.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';

let server: PostgresServer;
let client: Client;
let nextSchema = 0;

beforeAll(async () => {
  server = await startPostgresServer();
  client = await server.client();
});

const opened: PostgresStore[] = [];

afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()));
  await client.query('drop schema if exists redlock cascade');
});

afterAll(() => server.stop());

function newStore(schema?: string): PostgresStore {
  const store = new PostgresStore(
    { connectionString: server.url, ...(schema === undefined ? {} : { schema }) },
    newTerms(),
  );
  opened.push(store);
  return store;
}

/** Creates a schema of an application, and makes it the first of the search path. */
async function applicationSchema(sql: string): Promise<string> {
  const schema = `shop_${nextSchema++}`;
  await client.query(`create schema ${schema}; set search_path = ${schema}; ${sql}`);
  return schema;
}

/** Everything in a schema, with definitions, rights and the number of rows. */
async function contentsOf(schema: string): Promise<unknown> {
  const { rows } = await client.query(
    `select c.relname as name, c.relkind as kind, c.relacl::text as rights, obj_description(c.oid, 'pg_class') as comment,
       case when c.relkind = 'r' then (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from %s', c.oid::regclass), false, true, '')))[1]::text end as content
     from pg_class c where c.relnamespace = '${schema}'::regnamespace
     union all select p.oid::regprocedure::text, 'function', p.proacl::text, obj_description(p.oid, 'pg_proc'), p.prosrc
     from pg_proc p where p.pronamespace = '${schema}'::regnamespace
     union all select t.typname, 'type', t.typacl::text, null, null from pg_type t where t.typnamespace = '${schema}'::regnamespace
     order by 1, 2`,
  );
  return rows;
}

const TICKS = `create table ticks (symbol text, ends timestamptz);
  insert into ticks select 'S' || i, now() - interval '1 day' from generate_series(1, 1000) i;`;

test.each([
  ['a table', TICKS, 'table or view ticks'],
  ['an empty table with other columns', 'create table locks (door text)', 'table or view locks'],
  [
    'a table with our columns',
    'create table slots (key text, slot integer, token bigint)',
    'table or view slots',
  ],
  ['a view', 'create view waiters as select 1 as one', 'table or view waiters'],
  ['a sequence', 'create sequence sweeping', 'table or view sweeping'],
  ['a type', `create type holders as enum ('a')`, 'type holders'],
  [
    'a function that start-up calls',
    `create function version() returns integer language sql as 'select 3'`,
    'function version()',
  ],
  [
    'a newer function that start-up calls',
    `create function version() returns integer language sql as 'select 99'`,
    'function version()',
  ],
  [
    'a function with the parameters of ours',
    `create function settle(k text, released text, at timestamptz) returns void language sql as ''`,
    'function settle(text, text, timestamp with time zone)',
  ],
  [
    'a function with other parameters, which a call could mean',
    `create function sweep(most text) returns boolean language sql as 'select true'`,
    'function sweep(text)',
  ],
])(
  'a schema of the application with %s of a name that locks need is refused with the remedy, and stays as it is',
  async (_what, sql, named) => {
    const schema = await applicationSchema(sql);
    const before = await contentsOf(schema);

    const refused = newStore(schema).connect();
    await expect(refused).rejects.toBeInstanceOf(UnfitStoreError);
    await expect(refused).rejects.toThrow(
      `the schema ${schema} has objects with names that nestjs-redlock needs, which are not its own: ${named}. ` +
        'Give another `schema`, one for locks alone',
    );
    await expect(client.query(schemaSql(schema))).rejects.toThrow(`which are not its own: ${named}. Give`);
    await client.query('rollback');
    expect(await contentsOf(schema)).toEqual(before);
  },
);

test('a schema of the application without such names takes the tables, and its functions keep their rights', async () => {
  const schema = await applicationSchema(
    `create function price(n integer) returns integer language sql as 'select n * 2'; create table ticked ();`,
  );
  const lease = new Lease(['key'], 'me', 60_000);
  const store = newStore(schema);
  await store.connect();
  expect(await acquireOn(store, lease)).toMatchObject({ granted: true });
  const everybody = (name: string): string => `has_function_privilege('public', '${name}', 'execute')`;
  const { rows } = await client.query({
    text: `select ${everybody(`${schema}.price(integer)`)}, ${everybody('pg_catalog.version()')},
      ${everybody(`${schema}.version()`)}, ${everybody(`${schema}.acquire_lease(jsonb, timestamptz)`)}`,
    rowMode: 'array',
  });
  expect(rows).toEqual([[true, true, false, false]]);
});

test.each([1, 5] as const)(
  'a schema of version %d, which has no marks, is recognized and keeps its locks',
  async (version) => {
    await client.query(formerSchemaSql(version));
    const lease = new Lease(['held'], 'me', 60_000);
    await client.query(
      `insert into redlock.locks (key, state, id, owner, since, token, ends)
     values ('lock:held', 'held', '${lease.id}', 'me', 1, 7, now() + interval '1 minute')`,
    );
    const store = newStore();
    await store.connect();
    expect(await acquireOn(store, new Lease(['held'], 'other', 60_000))).toMatchObject({ granted: false });
    expect(await extendOn(store, lease, 60_000)).toBe(true);
    await releaseOn(store, lease);
    const { rows } = await client.query(
      `select redlock.version() as version, count(*) filter (where comment is distinct from 'nestjs-redlock') as unmarked
     from (
       select obj_description(oid, 'pg_class') as comment from pg_class where relnamespace = 'redlock'::regnamespace and relkind = 'r'
       union all select obj_description(oid, 'pg_proc') from pg_proc where pronamespace = 'redlock'::regnamespace
     ) as objects`,
    );
    expect(rows).toEqual([{ version: SCHEMA_VERSION, unmarked: '0' }]);
    await newStore().connect();
  },
);

test('a schema of version 5 that has taken over a table of the application is refused, and the table keeps its rows', async () => {
  await client.query(`create schema redlock; set search_path = redlock; ${TICKS}`);
  await client.query(formerSchemaSql(5));
  await expect(newStore().connect()).rejects.toThrow('which are not its own: table or view ticks. Give');
  expect((await client.query('select from redlock.ticks')).rowCount).toBe(1_000);
});
