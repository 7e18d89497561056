// The store of docs/own-store.md. A test checks that the page shows this code.
import { type KeyHolder, type LockDirectory, type LockStore, tellEach, tokenAt } from 'nestjs-redlock/store';

/** The row of one key. It stays after a release, because the next token must be larger. All times are times of the server. */
export const FREE = { id: '', owner: '', since: 0, token: 0, ends: 0, released: true, ran: {} as Ran };
export type Row = typeof FREE;
type Ran = Record<string, { at: number; owner: string; ends: number } | undefined>;

/** The operations that the store needs from a database. */
export interface Table {
  open(): Promise<unknown>;
  /** Passes the rows of the keys and the server's time to `change`, and stores the rows; other processes wait meanwhile. */
  change<T>(keys: readonly string[], change: (rows: [Row, ...Row[]], now: number) => T): Promise<T>;
  keys(prefix: string): Promise<string[]>;
  close(): Promise<void>;
}

const isHeld = ({ id, ends, released }: Row, by: string, now: number) => id === by && ends > now && !released;
const holderOf = ({ id, owner, since, token, ends }: Row, now: number): KeyHolder => {
  return { id, owner, since, fencingToken: token, remaining: ends - now, mode: 'exclusive' };
};

export class TableStore implements LockStore, LockDirectory {
  readonly name = 'my table';
  readonly modes = ['exclusive'] as const;
  readonly available = true;

  constructor(private readonly table: Table) {}

  connect = async () => void (await this.table.open());
  close = () => this.table.close();
  /** PostgreSQL keeps no text with a NUL character. */
  refuses = (keys: readonly string[]) =>
    keys.some((key) => key.includes('\0')) ? 'a key must not contain a NUL character' : undefined;

  acquire: LockStore['acquire'] = (requests, _ordered, tell) =>
    tellEach(requests, tell, ({ lease, since, limit }) => {
      const { id, owner, ttl, tick } = lease;
      const asked = performance.now();
      return this.table.change(lease.keys, (rows, now) => {
        // The caller has given up, and its release may have come already.
        if (lease.ended || performance.now() - asked > limit) throw new Error('too late');
        const ran = tick && rows[0].ran[tick.schedule];
        if (ran && ran.at >= tick.at && ran.ends > now)
          return {
            granted: false,
            ran: true,
            holder: { id: '', owner: ran.owner, remaining: ran.ends - now },
          };
        const other = rows.find((row) => row.id !== id && row.ends > now);
        if (other) return { granted: false, holder: holderOf(other, now) };
        // A repeated request gets the same grant. A lease that has ended, or has lost a key, is not stored again.
        if (rows.every((row) => isHeld(row, id, now))) return { granted: true, token: rows[0].token };
        if (rows.some((row) => row.id === id)) throw new Error('was granted before, and has ended');
        const token = Math.max(tokenAt(now), ...rows.map((row) => row.token + 1));
        for (const row of rows)
          Object.assign(row, { id, owner, since, token, ends: now + ttl, released: false });
        return { granted: true, token };
      });
    });

  extend: LockStore['extend'] = (leases, ttl, tell) =>
    tellEach(leases, tell, ({ id, keys }) =>
      this.table.change(keys, (rows, now) => {
        if (!rows.every((row) => isHeld(row, id, now))) return false;
        for (const row of rows) row.ends = Math.max(row.ends, now + ttl);
        return true;
      }),
    );

  release: LockStore['release'] = (requests, tell) =>
    tellEach(requests, tell, ({ lease: { id, owner, keys, keepFor, mark } }) =>
      this.table.change(keys, (rows, now) => {
        for (const row of rows)
          if (row.id === id && !row.released) Object.assign(row, { released: true, ends: now + keepFor });
        const { ran } = rows[0];
        if (mark && (ran[mark.schedule]?.at ?? 0) <= mark.at)
          ran[mark.schedule] = { at: mark.at, owner, ends: now + mark.life };
        return undefined;
      }),
    );

  read: LockDirectory['read'] = (keys) =>
    this.table.change(keys, (rows, now) =>
      rows.map((row) => (row.ends > now ? { mode: 'exclusive', holders: [holderOf(row, now)] } : undefined)),
    );

  async *scan(prefix: string) {
    yield await this.table.keys(prefix);
  }

  forceRelease: LockDirectory['forceRelease'] = (key, ids) =>
    this.table.change([key], ([row], now) => {
      if (!ids.includes(row.id) || row.ends <= now) return [];
      Object.assign(row, { released: true, ends: 0 });
      return [row.id];
    });
}
