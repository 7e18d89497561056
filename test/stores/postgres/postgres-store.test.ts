import { randomBytes } from 'node:crypto';
import { afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { Lease } from '../../../lib/core/lease.js';
import type { LockKind } from '../../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireReply } from '../../../lib/core/ports.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import type { PostgresOptions } from '../../../lib/stores/postgres/postgres.options.js';
import { SCHEMA_VERSION, schemaSql } from '../../../lib/stores/postgres/schema.js';
import { formerSchemaSql } from '../../fixtures/former-postgres-schema.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

const TTL = 60_000;

let server: PostgresServer;
let looker: Client;
let nextKey = 0;

beforeAll(async () => {
  server = await startPostgresServer();
  looker = await server.client();
});

const opened: PostgresStore[] = [];

afterEach(async () => {
  jest.restoreAllMocks();
  await Promise.all(opened.splice(0).map((store) => store.close()));
});

function newStore(options: Partial<PostgresOptions> = {}, terms = newTerms()): PostgresStore {
  const store = new PostgresStore({ connectionString: server.url, ...options }, terms);
  opened.push(store);
  return store;
}

async function openStore(options?: Partial<PostgresOptions>, terms = newTerms()): Promise<PostgresStore> {
  const store = newStore(options, terms);
  await store.connect();
  return store;
}

const freshKey = (): string => `key:${nextKey++}`;

const leaseOn = (keys: readonly string[], kind?: LockKind, ttl = TTL): Lease =>
  new Lease(keys, 'me', ttl, undefined, kind);

const PERMITS: LockKind = { mode: 'permits', permits: 2 };
const SHARED: LockKind = { mode: 'shared' };

async function count(sql: string): Promise<number> {
  const { rows } = await looker.query(`select count(*) as n from ${sql}`);
  return Number((rows as { n: string }[])[0]?.n);
}

function grantOf(reply: AcquireReply): Extract<AcquireReply, { granted: true }> {
  if (!reply.granted) throw new Error('refused');
  return reply;
}

/** Statements that a store sends by itself from time to time: the clean-up, and the checks of its connection for messages. */
const HOUSEKEEPING = /sweep|^select json_build_object|pg_notify\(|^listen|^select '1'$/;

/** Resolves to the statements that are sent during a task, without `HOUSEKEEPING`. */
async function statementsOf(task: () => Promise<unknown>): Promise<string[]> {
  const spy = jest.spyOn(Client.prototype, 'query');
  await task();
  const sent = spy.mock.calls.map(([asked]) => (asked as unknown as { text: string }).text);
  return sent.filter((text) => !HOUSEKEEPING.test(text));
}

describe('the store', () => {
  test('the store takes one round trip to acquire several keys and one round trip to release them', async () => {
    const store = await openStore();
    const lease = leaseOn([freshKey(), freshKey(), freshKey()]);
    const sent = await statementsOf(async () => {
      await acquireOn(store, lease);
      await releaseOn(store, lease);
    });
    expect(sent).toEqual(Array(2).fill('select "redlock".turn($1::text[], $2::jsonb)::text'));
  });

  test('the store sends simultaneous acquires, renewals and releases in one statement', async () => {
    const store = await openStore();
    const [held, ended] = [leaseOn([freshKey()]), leaseOn([freshKey()])];
    await Promise.all([held, ended].map((lease) => acquireOn(store, lease)));
    const sent = await statementsOf(async () => {
      const asked = Array.from({ length: 50 }, () => acquireOn(store, leaseOn([freshKey()])));
      const [extended] = await Promise.all([extendOn(store, held, TTL), releaseOn(store, ended), ...asked]);
      expect(extended).toBe(true);
    });
    expect(sent).toHaveLength(1);
  });

  test('the store sends many renewals in few statements, and answers each one separately', async () => {
    const store = await openStore();
    const leases = Array.from({ length: 300 }, (_, index) =>
      leaseOn([freshKey()], index % 3 === 0 ? SHARED : undefined),
    );
    await Promise.all(leases.map((lease) => acquireOn(store, lease)));
    await releaseOn(store, leases[7]!);
    const sent = await statementsOf(async () => {
      const answers = await Promise.all(leases.map((lease) => extendOn(store, lease, 2 * TTL)));
      expect(answers.map((held, index) => (held ? -1 : index)).filter((index) => index >= 0)).toEqual([7]);
    });
    // Each statement has at least 25 renewals, and more if the server is quick.
    expect(sent.length).toBeLessThanOrEqual(300 / 25);
  });

  test('the store sends one statement at a time, so that `pg` 8 logs no warning and `pg` 9 refuses no statement', async () => {
    const store = await openStore();
    const query = Client.prototype.query as unknown as (
      this: Client,
      ...asked: unknown[]
    ) => Promise<unknown>;
    const running = new Map<Client, number>();
    let most = 0;
    jest.spyOn(Client.prototype, 'query').mockImplementation(async function (
      this: Client,
      ...asked: unknown[]
    ) {
      const current = (running.get(this) ?? 0) + 1;
      running.set(this, current);
      most = Math.max(most, current);
      try {
        return await query.apply(this, asked);
      } finally {
        running.set(this, (running.get(this) ?? 0) - 1);
      }
    } as never);
    const keys = Array.from({ length: 20 }, freshKey);
    const read = keys.map((key) => store.read([key]));
    const acquired = keys.map((key) => acquireOn(store, leaseOn([key])));
    await Promise.all([...read, ...acquired]);
    expect(most).toBe(1);
  });

  test('the store opens two connections with the given `applicationName`', async () => {
    await openStore({ applicationName: 'the two' });
    // A connection of the start that has ended may still be listed for a moment.
    const isTwo = async () => (await count(`pg_stat_activity where application_name = 'the two'`)) === 2;
    await expect(until(isTwo)).resolves.toBeUndefined();
  });
});

describe('fencing tokens', () => {
  test('fencing tokens follow the clock at a scale that is the same in every store', async () => {
    const store = await openStore();
    const { token } = grantOf(await acquireOn(store, leaseOn([freshKey()])));
    expect(Math.abs(token / 2 ** 20 - Date.now() / 1_000)).toBeLessThan(60);
  });

  test('a token is larger than the last token of its key even when the clock is behind that token', async () => {
    const store = await openStore();
    const [a, b] = [freshKey(), freshKey()];
    await looker.query(`insert into redlock.locks (key, token) values ($1, $2)`, [`lock:${a}`, 2 ** 52]);
    expect(grantOf(await acquireOn(store, leaseOn([a, b]))).token).toBe(2 ** 52 + 1);
  });

  test('tokens do not grow beyond Number.MAX_SAFE_INTEGER: the next acquire of the key fails', async () => {
    const store = await openStore();
    const [key, other] = [freshKey(), freshKey()];
    await looker.query(`insert into redlock.locks (key, token) values ($1, $2)`, [
      `lock:${key}`,
      String(Number.MAX_SAFE_INTEGER),
    ]);
    const [refused, granted] = await Promise.allSettled([
      acquireOn(store, leaseOn([key])),
      acquireOn(store, leaseOn([other])),
    ]);
    expect(refused).toMatchObject({
      reason: expect.objectContaining({ message: expect.stringContaining('out of range') }),
    });
    expect(granted).toMatchObject({ value: { granted: true } });
  });
});

describe('a request', () => {
  test('the store refuses a key with a NUL character, and takes the longest key', async () => {
    const store = await openStore();
    expect(store.refuses(['a', 'a\0b'])).toMatch(/has no NUL character/);
    // 2,048 bytes with the prefix `lock:`, which no text can compress.
    const longest = randomBytes(1_021).toString('hex') + 'x';
    expect(store.refuses([longest])).toBeUndefined();
    await expect(acquireOn(store, leaseOn([longest]))).resolves.toMatchObject({ granted: true });
  });

  test('a request does nothing when it arrives after its time limit (S16)', async () => {
    const proxy = await startTcpProxy(server);
    const store = await openStore({
      connectionString: `postgres://postgres@${proxy.host}:${proxy.port}/postgres`,
    });
    const key = freshKey();
    proxy.holdRequests();
    const late = acquireOn(store, leaseOn([key]), { limit: 1_000 });
    await delay(1_100);
    await proxy.heal();
    await expect(late).rejects.toThrow(/too late, and did nothing/);
    expect(await count(`redlock.locks where key = 'lock:${key}' and state <> 'free'`)).toBe(0);
  });

  test('a request fails when its caller gives up before the store sends the request (S15)', async () => {
    const store = await openStore();
    const lease = leaseOn([freshKey()]);
    const first = acquireOn(store, leaseOn([freshKey()]));
    const given = acquireOn(store, lease);
    lease.ended = true;
    await expect(given).rejects.toThrow('the attempt ended before the request was sent');
    await first;
  });
});

describe('concurrent batches', () => {
  test('a row that another transaction holds fails only the requests for its key', async () => {
    const store = await openStore();
    const [stuck, kept, ended] = [1, 2, 3].map(() => leaseOn([freshKey()])) as [Lease, Lease, Lease];
    for (const each of [stuck, kept, ended]) await acquireOn(store, each);
    await looker.query('begin');
    try {
      await looker.query('select from redlock.locks where key = $1 for update', [`lock:${stuck.keys[0]}`]);
      const answers = await Promise.allSettled([
        extendOn(store, stuck, TTL),
        extendOn(store, kept, TTL),
        releaseOn(store, ended),
        acquireOn(store, leaseOn([freshKey()])),
      ]);
      expect(answers).toMatchObject([
        { status: 'rejected', reason: { code: '55P03' } },
        { status: 'fulfilled', value: true },
        { status: 'fulfilled' },
        { status: 'fulfilled', value: { granted: true } },
      ]);
    } finally {
      await looker.query('rollback');
    }
  });

  test('batches of the same keys in different orders do not deadlock', async () => {
    const stores = await Promise.all([openStore(), openStore(), openStore()]);
    const keys = Array.from({ length: 20 }, freshKey);
    for (let round = 0; round < 30; round++) {
      const answers = await Promise.all(
        stores.map(async (store) => {
          const shuffled = keys.toSorted(() => Math.random() - 0.5);
          const leases = shuffled.map((key) => leaseOn([key]));
          const replies = await Promise.all(leases.map((lease) => acquireOn(store, lease)));
          await Promise.all(leases.map((lease) => releaseOn(store, lease)));
          return replies;
        }),
      );
      for (const replies of answers) expect(replies).toHaveLength(keys.length);
    }
  });
});

describe('shared locks', () => {
  test('`holdBack` for a second writer does not wait for the row lock while a first writer holds readers back (S22)', async () => {
    const store = await openStore();
    const key = freshKey();
    await acquireOn(store, leaseOn([key], SHARED));
    const waiter = { keys: [key], mode: 'exclusive', process: 'p', number: 1, owner: 'writer' } as const;
    expect(await store.holdBack(waiter, 1_000)).toBe(true);
    await lengthenMark(key);
    await looker.query('begin');
    try {
      await looker.query('select from redlock.locks where key = $1 for update', [`lock:${key}`]);
      // If `holdBack` waited for the row lock, it would wait for ever.
      expect(await store.holdBack({ ...waiter, number: 2 }, 10)).toBe(false);
    } finally {
      await looker.query('rollback');
    }
  });
});

/**
 * Makes the mark that `holdBack` has set on a key last a minute longer. Without this a mark lasts two seconds, which is
 * too short on a busy machine.
 */
async function lengthenMark(key: string): Promise<void> {
  await looker.query(`update redlock.locks set mark_ends = mark_ends + interval '1 minute' where key = $1`, [
    `lock:${key}`,
  ]);
}

describe('waiters', () => {
  const options: AcquireTerms = {
    ttl: TTL,
    renew: true,
    signals: [],
    // A waiter asks again after five seconds at the earliest.
    retry: { timeout: 50_000, attempts: Infinity, delay: 40_000, jitter: 1 },
  };

  /** Milliseconds; a waiter that does not take a free lock within its turn is passed over. */
  const TURN = 150;

  async function newProcess(owner: string) {
    const redlock = redlockOver([await openStore()], { owner, ...PATIENT });
    return redlock;
  }

  test.each([
    ['exclusive locks', undefined],
    ['permits', { mode: 'permits', permits: 1 } as LockKind],
  ])('waiters acquire %s in order of arrival, each woken by a message', async (_, kind) => {
    const processes = await Promise.all(['a', 'b', 'c'].map(newProcess));
    const key = freshKey();
    const held = await processes[0]!.acquire([key], { ...options, ...(kind ? { kind } : {}) });
    const served: number[] = [];
    // Number of calls that are served before the first slow hand-over. The turn of a waiter may end during a slow
    // hand-over, and later waiters may then come first.
    let inOrder = Infinity;
    let released: number;
    const waiting: Promise<void>[] = [];
    for (let index = 0; index < 9; index++) {
      const wait = async (): Promise<void> => {
        const lock = await processes[index % 3]!.acquire([key], { ...options, ...(kind ? { kind } : {}) });
        if (performance.now() - released > TURN) inOrder = Math.min(inOrder, served.length);
        served.push(index);
        released = performance.now();
        await lock.release();
      };
      waiting.push(wait());
      // The call joins the queue, or waits behind a call of the same process that is in the queue.
      await until(
        async () => (await count(`redlock.waiters where key = 'lock:${key}'`)) === Math.min(index + 1, 3),
      );
      // The pause makes the order of arrivals certain. Only one call of a process is in the queue at a time. The store
      // computes the arrival of the next call from the time that the call has waited, which is not exact.
      await delay(TURN);
    }
    const begun = performance.now();
    released = begun;
    await held.release();
    await Promise.all(waiting);
    const order = [0, 1, 2, 3, 4, 5, 6, 7, 8];
    expect(served.toSorted()).toEqual(order);
    expect(served.slice(0, inOrder)).toEqual(order.slice(0, inOrder));
    // Without messages each hand-over would take five seconds.
    expect(performance.now() - begun).toBeLessThan(30_000);
    expect(await count(`redlock.waiters where key = 'lock:${key}'`)).toBe(0);
  });

  test('a waiter behind a dead process acquires before the queue entry of that process expires', async () => {
    const [alive, redlock] = await Promise.all([newProcess('alive'), newProcess('holder')]);
    const key = freshKey();
    const held = await redlock.acquire([key], options);
    await looker.query(
      `insert into redlock.waiters values ($1, 'dead:1', 'redlock_dead', 'exclusive', 'dead', now() - interval '1 s', now())`,
      [`lock:${key}`],
    );
    const next = alive.acquire([key], options);
    await until(async () => (await count(`redlock.waiters where key = 'lock:${key}'`)) === 2);
    const released = performance.now();
    await held.release();
    await (await next).release();
    // The entry of the dead waiter lasts for a minute.
    expect(performance.now() - released).toBeLessThan(30_000);
  });

  test('a waiter receives only messages for its own process', async () => {
    const store = await openStore();
    const told: unknown[] = [];
    store.listen({ keys: ['k'], mode: 'exclusive', process: 'p', number: 1, owner: 'me' }, (...what) =>
      told.push(what),
    );
    await looker.query(`select pg_notify($1, '0 - q:1')`, [await channelOf(store)]);
    await looker.query(`select pg_notify($1, '0 id p:1')`, [await channelOf(store)]);
    await until(() => told.length > 0);
    expect(told).toEqual([[0, true, 'id']]);
  });

  async function channelOf(store: PostgresStore): Promise<string> {
    const key = freshKey();
    await acquireOn(store, leaseOn([key]));
    const waiter = { keys: [key], mode: 'exclusive', process: 'x', number: 1, owner: 'me' } as const;
    await acquireOn(store, leaseOn([key]), {
      ordered: true,
      position: { waiter, waited: 0, next: undefined },
    });
    const { rows } = await looker.query('select channel from redlock.waiters where key = $1', [
      `lock:${key}`,
    ]);
    await store.leave(waiter);
    return (rows as { channel: string }[])[0]!.channel;
  }

  test("a waiter acquires even when locked methods have exhausted the application's own pool", async () => {
    const { Pool } = await import('pg');
    const pool = new Pool({ connectionString: server.url, max: 1 });
    const redlock = await newProcess('a');
    const key = freshKey();
    const work = async (): Promise<void> => {
      const client = await pool.connect();
      try {
        const lock = await redlock.acquire([key], options);
        await client.query('select 1');
        await lock.release();
      } finally {
        client.release();
      }
    };
    await expect(Promise.all(Array.from({ length: 5 }, work))).resolves.toHaveLength(5);
    await pool.end();
  });
});

describe('the tables of the store', () => {
  async function database(name: string): Promise<string> {
    await looker.query(`create database ${name}`);
    return server.urlOf('postgres', name);
  }

  test('the tables are created at start-up, even by ten processes at the same time', async () => {
    const connectionString = await database('ten');
    const stores = Array.from({ length: 10 }, () => newStore({ connectionString }));
    const connect = async (store: PostgresStore): Promise<void> => {
      // The processes wait for each other. On a busy machine that can be longer than a statement may take, and a store then
      // connects again.
      await store.connect().catch((error: Error) => {
        if (!error.message.includes('no answer within')) throw error;
      });
      await until(() => store.available);
    };
    await Promise.all(stores.map(connect));
    const leases = stores.map(() => leaseOn(['one']));
    const replies = await Promise.all(stores.map((store, index) => acquireOn(store, leases[index]!)));
    expect(replies.filter(({ granted }) => granted)).toHaveLength(1);
  });

  test('the tables are in the given schema, so that locks of two schemas are independent', async () => {
    const [a, b] = await Promise.all([openStore({ schema: 'one' }), openStore({ schema: 'Two' })]);
    for (const store of [a, b])
      expect(await acquireOn(store, leaseOn(['key']))).toMatchObject({ granted: true });
    expect(await count(`"Two".locks`)).toBe(1);
  });

  test('the migration creates the tables, and can run again', async () => {
    const client = await server.client(await database('migrated'));
    await client.query(schemaSql('redlock'));
    await client.query(schemaSql('redlock'));
    const { rows } = await client.query('select redlock.version() as version');
    expect(rows).toEqual([{ version: SCHEMA_VERSION }]);
  });

  test('a migration keeps the locks in the tables, and start-up never changes the tables to an older version', async () => {
    const connectionString = await database('upgraded');
    const client = await server.client(connectionString);
    const store = await openStore({ connectionString });
    const lease = leaseOn(['held']);
    await acquireOn(store, lease);
    await client.query(schemaSql('redlock'));
    await client.query(
      "create or replace function redlock.version() returns integer language sql immutable as 'select 99'",
    );

    const later = await openStore({ connectionString });
    expect(await acquireOn(later, leaseOn(['held']))).toMatchObject({ granted: false });
    expect(await extendOn(store, lease, TTL)).toBe(true);
    const { rows } = await client.query('select redlock.version() as version');
    expect(rows).toEqual([{ version: 99 }]);
  });

  test('a role with only the rights from the migration can use locks, and a role without these rights is refused', async () => {
    const connectionString = await database('rights');
    const owner = await server.client(connectionString);
    await owner.query(
      'create role least login; create role nobody_else login; revoke all on schema public from public',
    );
    await owner.query(schemaSql('redlock', 'least'));

    const store = await openStore({ connectionString: server.urlOf('least', 'rights') });
    const redlock = redlockOver([store], { owner: 'least', ...PATIENT });
    for (const kind of [undefined, SHARED, PERMITS]) {
      const request = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY, ...(kind ? { kind } : {}) };
      const lock = await redlock.acquire(['a', 'b'], request);
      await lock.extend(2 * TTL);
      const waits = redlock.acquire(['a', 'b'], {
        ...request,
        retry: { timeout: 50_000, attempts: 9, delay: 20, jitter: 1 },
      });
      const outcome = await waits.then(
        (other) => other.release().then(() => 'held, too'),
        ({ code }: { code: string }) => code,
      );
      expect(outcome).toBe(kind ? 'held, too' : 'LOCK_HELD');
      await lock.release();
    }
    await acquireOn(store, leaseOn(['c']));
    expect(await store.forceRelease('c', ['x'])).toEqual([]);
    for await (const page of store.scan('')) expect(page).toEqual(['c']);
    expect(await store.check()).toEqual({ state: 'voting', warnings: [] });

    const least = await server.client(server.urlOf('least', 'rights'));
    for (const sql of [
      'select * from redlock.locks',
      'delete from redlock.waiters',
      'create table redlock.mine ()',
    ])
      await expect(least.query(sql)).rejects.toThrow(/permission denied/);
    await expect(least.query(`select redlock.acquire_lease('{}', now())`)).rejects.toThrow(
      /permission denied/,
    );

    const other = newStore({ connectionString: server.urlOf('nobody_else', 'rights') });
    await expect(other.connect()).rejects.toThrow(
      /does not let its role use the schema redlock: run the output of `npx nestjs-redlock postgres-migration --role ROLE`/,
    );
  });

  test('a role keeps its rights when a later migration recreates a function', async () => {
    const owner = await server.client(await database('kept_rights'));
    await owner.query('create role early login');
    const hold = 'redlock.hold_back(text[], text, text, text, double precision)';
    // The function `hold_back` of version 1 has another result.
    await owner.query(formerSchemaSql(1));
    await owner.query('grant execute on all functions in schema redlock to early');
    await owner.query(schemaSql('redlock'));
    const rights = `has_function_privilege('early', '${hold}', 'execute') as early`;
    const others = `has_function_privilege('public', '${hold}', 'execute') as everybody`;
    const { rows } = await owner.query(
      `select ${rights}, ${others}, pg_get_function_result('${hold}'::regprocedure)`,
    );
    expect(rows).toEqual([{ early: true, everybody: false, pg_get_function_result: 'boolean' }]);
  });

  test('when tables are missing and the role may not create them, the error says how to create the tables', async () => {
    const connectionString = await database('bare');
    await looker.query('create role poor login');
    const terms = newTerms();
    const store = newStore({ connectionString: connectionString.replace('postgres@', 'poor@') }, terms);
    await expect(store.connect()).rejects.toThrow(
      /has no tables for locks in the schema redlock.*permission denied.*postgres-migration/,
    );
    // The store goes on trying, because somebody may create the tables.
    const owner = await server.client(connectionString);
    await owner.query(schemaSql('redlock', 'poor'));
    await until(() => terms.events.includes('ready'));
    expect(await acquireOn(store, leaseOn(['key']))).toMatchObject({ granted: true });
  });

  test('the clean-up of the store deletes only rows with an old end and an old token', async () => {
    const connectionString = await database('swept');
    const store = await openStore({ connectionString });
    const client = await server.client(connectionString);
    const [held, fresh] = [leaseOn(['held']), leaseOn(['fresh'])];
    await acquireOn(store, held);
    await acquireOn(store, fresh);
    await releaseOn(store, fresh);
    const tick = { schedule: 's', at: 1, life: 1, from: 'release' } as const;
    const ticking = new Lease(['ticked'], 'me', TTL, tick);
    await acquireOn(store, ticking);
    ticking.acquired(performance.now(), 0);
    await releaseOn(store, ticking);
    await client.query(
      `insert into redlock.locks (key, token, ends) values
         ('ahead of the clock', extract(epoch from now() + interval '1 hour') * 1048576, now() - interval '61 seconds'),
         ('recent', 1, now() - interval '5 seconds'), ('waited for', 1, now() - interval '61 seconds');
       insert into redlock.waiters values ('waited for', 'w', 'c', 'exclusive', 'o', now(), now());
       insert into redlock.locks (key, token, ends, mode) select 'old ' || i, i, now() - interval '61 seconds', 'permits'
       from generate_series(1, 2500) i;
       insert into redlock.slots select 'old ' || i, 0, i from generate_series(1, 2500) i;
       insert into redlock.waiters select 'old ' || i, 'w', 'c', 'shared', 'o', now() - interval '2 days', now() - interval '2 days'
         from generate_series(1, 10) i;
       insert into redlock.holders select 'old ' || i, 'id', 'o', 1, 1, 0, false, now() - interval '61 seconds'
         from generate_series(1, 10) i;
       insert into redlock.holders select 'lock:held', 'id ' || i, 'o', 1, 1, 0, false, now() - interval '61 seconds'
         from generate_series(1, 2500) i;
       insert into redlock.ticks select 'ticked', 's ' || i, 1, 'o', now() - interval '1 second' from generate_series(1, 2500) i;`,
    );
    jest.spyOn(Math, 'random').mockReturnValue(0);
    await openStore({ connectionString });
    await until(async () => (await countsOf(client)).ticks === '0');
    expect(await countsOf(client)).toEqual({
      locks: ['ahead of the clock', 'lock:fresh', 'lock:held', 'lock:ticked', 'recent', 'waited for'],
      slots: '0',
      waiters: '1',
      holders: '0',
      ticks: '0',
      forgotten: '2500',
    });
    expect(await extendOn(store, held, TTL)).toBe(true);
  });

  async function countsOf(client: Client): Promise<Record<string, unknown>> {
    const { rows } = await client.query(
      `select (select array_agg(key order by key) from redlock.locks) as locks, (select count(*) from redlock.slots) as slots,
         (select count(*) from redlock.waiters) as waiters, (select count(*) from redlock.holders) as holders,
         (select count(*) from redlock.ticks) as ticks, (select forgotten from redlock.sweeping) as forgotten`,
    );
    return rows[0] as Record<string, unknown>;
  }

  test.each([
    ['an exclusive lock', undefined],
    ['a shared lock', SHARED],
    ['a permit', PERMITS],
  ])(
    'the token of %s is larger than the token that was removed, even when the clock is set back',
    async (_name, kind) => {
      const connectionString = await database(`forgotten_${nextKey++}`);
      const store = await openStore({ connectionString });
      const client = await server.client(connectionString);
      // The clock was an hour ahead when the token was given and when it was removed.
      await client.query(
        "update redlock.sweeping set forgotten = extract(epoch from now() + interval '1 hour') * 1048576",
      );
      const { rows } = await client.query<{ forgotten: string }>('select forgotten from redlock.sweeping');
      const { token } = grantOf(await acquireOn(store, leaseOn(['key'], kind)));
      expect(token).toBe(Number(rows[0]?.forgotten) + 1);
      if (kind !== PERMITS) return;
      const second = grantOf(await acquireOn(store, leaseOn(['key'], kind)));
      expect(second.token).toBeGreaterThan(Number(rows[0]?.forgotten));
    },
  );

  test('a process may remove rows when the claim of another one is over, or longer than a claim can be', async () => {
    const client = await server.client(await database('claimed_sweep'));
    await client.query(schemaSql('redlock'));
    const claims: unknown[] = [];
    // A clock that was set back by an hour leaves the last of these ends.
    for (const ends of ['-1 second', '15 seconds', '1 hour']) {
      await client.query(`update redlock.sweeping set process = 'ended', until = now() + interval '${ends}'`);
      const { rows } = await client.query(`select redlock.take_sweep_turn('me', 20000) as has`);
      claims.push((rows as { has: boolean }[])[0]?.has);
    }
    expect(claims).toEqual([true, false, true]);
  });

  test('the clean-up of a process of schema version 5 examines a limited number of rows in each call, and passes over locked rows', async () => {
    const client = await server.client(await database('swept_by_version_5'));
    const other = await server.client(server.urlOf('postgres', 'swept_by_version_5'));
    await client.query(schemaSql('redlock'));
    await client.query(
      `insert into redlock.locks (key, token, ends) select 'old ' || i, i, now() - interval '61 seconds' from generate_series(1, 25) i`,
    );
    await other.query("begin; select from redlock.locks where key = 'old 7' for update");
    const left: unknown[] = [];
    for (let more = true; more;) {
      const { rows } = await client.query('select redlock.sweep(10) as more');
      more = (rows as { more: boolean }[])[0]!.more;
      left.push(((await countsOf(client))['locks'] as string[] | null)?.length);
    }
    expect(left).toEqual([15, 5, 1]);
    await other.query('rollback');
  });

  test('a list that takes long leaves the connection for locks free', async () => {
    const connectionString = await database('side');
    const store = await openStore({ connectionString, applicationName: 'side' });
    const client = await server.client(connectionString);
    await client.query(
      `create or replace function redlock.scan_page(prefix text, after text, most integer) returns jsonb language plpgsql
       as $$ begin perform pg_sleep(60); end $$`,
    );
    const listed = store
      .scan('')
      .next()
      .catch(() => 'closed');
    await until(
      async () =>
        (await count(`pg_stat_activity where query like '%scan_page(%' and application_name = 'side'`)) > 0,
    );
    const begun = performance.now();
    const lease = leaseOn(['key']);
    await acquireOn(store, lease);
    await releaseOn(store, lease);
    // The list would last a minute.
    expect(performance.now() - begun).toBeLessThan(30_000);
    await store.close();
    expect(await listed).toBe('closed');
  });

  test('`scan` examines a limited number of rows in each statement, and finds the held locks among free ones', async () => {
    const connectionString = await database('scanned');
    const store = await openStore({ connectionString });
    const client = await server.client(connectionString);
    await client.query(
      `insert into redlock.locks (key, state, ends, token) select 'lock:' || i, case when i % 1000 = 0 then 'held' else 'free' end,
         now() + interval '1 minute', 1 from generate_series(1, 5000) i`,
    );
    const found: string[] = [];
    const sent = await statementsOf(async () => {
      for await (const page of store.scan('')) found.push(...page);
    });
    expect(found).toEqual(['1000', '2000', '3000', '4000', '5000']);
    expect(sent.filter((text) => text.includes('scan_page'))).toHaveLength(6);
  });
});

describe('a server', () => {
  test('`check` reports a fit PostgreSQL server as voting, without warnings', async () => {
    await expect((await openStore()).check()).resolves.toEqual({ state: 'voting', warnings: [] });
  });

  test('a server is refused, with the remedy, when its default isolation level is serializable', async () => {
    await looker.query(
      `create role frozen login superuser; alter role frozen set default_transaction_isolation = 'serializable'`,
    );
    await expect(newStore({ connectionString: server.urlOf('frozen') }).connect()).rejects.toThrow(
      /default_transaction_isolation is serializable; set it for this role/,
    );
  });

  test('a server is refused when it is read-only', async () => {
    await looker.query(
      `create role reader login superuser; alter role reader set default_transaction_read_only = on`,
    );
    await expect(newStore({ connectionString: server.urlOf('reader') }).connect()).rejects.toThrow(
      /cannot be used for locks: default_transaction_read_only is on/,
    );
  });

  test('a server is refused when the encoding of its database is not UTF8', async () => {
    await looker.query(
      `create database latin encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'`,
    );
    await expect(newStore({ connectionString: server.urlOf('postgres', 'latin') }).connect()).rejects.toThrow(
      /the encoding of its database is LATIN1, not UTF8/,
    );
  });

  test('a server causes a warning when it may lose confirmed data', async () => {
    await looker.query(
      `create role careless login superuser; alter role careless set synchronous_commit = off`,
    );
    const terms = newTerms();
    const store = await openStore({ connectionString: server.urlOf('careless') }, terms);
    const warning = /synchronous_commit is off.*; set it to on for this role/;
    expect(terms.warnings).toEqual([expect.stringMatching(warning)]);
    expect(terms.warnings[0]).toContain(store.name);
    await expect(store.check()).resolves.toEqual({
      state: 'voting',
      warnings: [expect.stringMatching(warning)],
    });
  });

  test('the name of a store contains neither user nor password', () => {
    const store = newStore({ connectionString: 'postgres://app:secret@db:5432/app?sslmode=require' });
    expect(store.name).toBe('PostgreSQL at db:5432/app');
  });
});
