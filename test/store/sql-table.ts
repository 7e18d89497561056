// The second example of a `Table` in docs/own-store.md. A test checks that the page shows this code.
import { Pool } from 'pg';
import { FREE, type Row, type Table } from './table-store.js';

export function sqlTable(connectionString: string): Table {
  // A pool of its own: if locked methods exhausted a pool that the store shares, no method could release its lock.
  const pool = new Pool({ connectionString }).on('error', () => undefined);
  return {
    open: () => pool.query('create table if not exists my_locks (key text primary key, lock jsonb not null)'),
    change: async (keys, change) => {
      const missing = 'insert into my_locks select unnest($1::text[]), $2 on conflict do nothing';
      await pool.query(missing, [keys, FREE]);
      const client = await pool.connect();
      let isOver = false;
      try {
        await client.query('begin');
        // Every process locks rows in the same order, so that two processes with common keys do not deadlock.
        const locked = 'select key, lock from my_locks where key = any($1) order by key for update';
        const rows = new Map<string, Row>();
        for (const { key, lock } of (await client.query(locked, [keys])).rows) rows.set(key, lock);
        const time = await client.query('select extract(epoch from clock_timestamp())::float8 * 1000 as now');
        const result = change(keys.map((key) => rows.get(key)) as [Row, ...Row[]], time.rows[0].now);
        const store = 'update my_locks set lock = $2 where key = $1';
        for (const [key, lock] of rows) await client.query(store, [key, lock]);
        await client.query('commit');
        isOver = true;
        return result;
      } finally {
        // The database rolls back when the connection is closed.
        client.release(!isOver);
      }
    },
    keys: async (prefix) => {
      const { rows } = await pool.query('select key from my_locks where starts_with(key, $1)', [prefix]);
      return rows.map(({ key }) => key);
    },
    close: () => pool.end(),
  };
}
