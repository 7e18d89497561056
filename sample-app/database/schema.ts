import { FencedRegister } from 'nestjs-redlock/fencing';
import type { Pool } from 'pg';

/**
 * Number of the advisory lock that keeps instances from creating the tables at the same time. Any constant would do.
 */
const SCHEMA_LOCK = 7_236_401;

/** Stores the highest token of each lock, and refuses lower ones. The idle timeout ends a transaction that is paused. */
export const register = new FencedRegister({ idleTimeout: 5_000 });

const SCHEMA = `
  create table if not exists tasks (
    id           uuid primary key,
    name         text not null,
    payload      jsonb not null,
    status       text not null default 'pending'
                 check (status in ('pending', 'enqueued', 'processing', 'failed', 'dead', 'done')),
    dispatches   integer not null default 0,
    attempts     integer not null default 0,
    error        text,
    processed_by text,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now()
  );

  create index if not exists tasks_to_dispatch on tasks (created_at) where status in ('pending', 'failed');
  create index if not exists tasks_under_way on tasks (updated_at) where status in ('enqueued', 'processing');

  create table if not exists instances (
    name              text primary key,
    dispatches        integer not null default 0,
    skips             integer not null default 0,
    refused           integer not null default 0,
    dispatching_since timestamptz
  );

  ${register.createTableSql};
`;

/**
 * Creates missing tables. The lock makes this safe when several instances start at the same time; `if not exists` alone
 * is not safe.
 */
export async function createSchema(pool: Pool): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock($1)', [SCHEMA_LOCK]);
    await client.query(SCHEMA);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
}
