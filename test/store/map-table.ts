// The first example of a `Table` in docs/own-store.md. A test checks that the page shows this code.
import { FREE, type Row, type Table } from './table-store.js';

/** A table in the memory of one process, for the first steps. */
export function mapTable(): Table {
  const rows = new Map<string, Row>();
  return {
    open: () => Promise.resolve(),
    change: async (keys, change) => {
      for (const key of keys) if (!rows.has(key)) rows.set(key, { ...FREE, ran: {} });
      return change(
        keys.map((key) => rows.get(key)) as [Row, ...Row[]],
        performance.timeOrigin + performance.now(),
      );
    },
    keys: async (prefix) => [...rows.keys()].filter((key) => key.startsWith(prefix)),
    close: () => Promise.resolve(),
  };
}
