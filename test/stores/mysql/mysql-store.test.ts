import { beforeAll, describe, expect, test } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { STEPS_PER_SECOND } from '../../../lib/core/fencing-token.js';
import { Lease } from '../../../lib/core/lease.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { MysqlStore } from '../../../lib/stores/mysql/mysql-store.js';
import { SCHEMA_VERSION, SchemaNames, schemaScript } from '../../../lib/stores/mysql/schema.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { hasMysql, type MysqlServer, startMysqlServer } from '../../support/mysql-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

/** Calls of the procedures for locks that wait on the server. */
const WAITING = `select count(*) from information_schema.processlist where command in ('Query', 'Execute') and info like '%redlock_locks%' and id <> connection_id()`;

(hasMysql() ? describe : describe.skip)('a store in MariaDB', () => {
  let server: MysqlServer;

  beforeAll(async () => {
    server = await startMysqlServer();
  });

  async function openStore(
    tablePrefix = 'redlock_',
    terms = newTerms(),
    user = server.user,
  ): Promise<MysqlStore> {
    const store = new MysqlStore({ uri: server.uriOf(user), tablePrefix }, terms);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return store;
  }

  // This is the first test, because the optimizer reads a table with few rows in another way.
  test('requests that share a statement wait for no row of another key, also while the table has few rows', async () => {
    const store = await openStore();
    const lease = (key: string, mode: 'exclusive' | 'shared' = 'exclusive'): Lease =>
      new Lease([`few:${key}`], 'me', 60_000, undefined, { mode });
    const other = lease('other');
    const [kept, ended, read] = [lease('kept'), lease('ended'), lease('read', 'shared')];
    for (const each of [other, kept, ended, read]) await acquireOn(store, each);
    const looker = await server.client();
    await looker.query("begin; select k from redlock_locks where k = 'lock:few:other' for update");
    await expect(
      Promise.all([extendOn(store, kept, 60_000), extendOn(store, read, 60_000)]),
    ).resolves.toEqual([true, true]);
    const granted = await Promise.all([
      releaseOn(store, ended),
      releaseOn(store, read),
      acquireOn(store, lease('ended')),
      acquireOn(store, lease('new')),
    ]);
    expect(granted).toMatchObject([undefined, undefined, { granted: true }, { granted: true }]);
    await looker.query('rollback');
  });

  // With the clock of the beginning of the call, the extension would revive the lock, and the acquisition would be stored.
  test('a call that waited for a row decides by the time after the wait (S9, S16)', async () => {
    const [store, other] = [await openStore(), await openStore()];
    const looker = await server.client();
    /** Resolves to `false` if the machine stalled, so that a call was not sent in time, or waited until its limit. */
    const waits = async (round: number): Promise<boolean> => {
      const keys = [`held ${round}`, `wanted ${round}`] as const;
      const [held, wanted] = [new Lease([keys[0]], 'me', 400), new Lease([keys[1]], 'me', 60_000)];
      const free = new Lease(wanted.keys, 'me', 60_000);
      await acquireOn(store, free);
      await releaseOn(store, free);
      expect(await acquireOn(store, held)).toMatchObject({ granted: true });
      await looker.query('begin');
      await looker.query('select k from redlock_locks for update');
      const locked = performance.now();
      let isUnsent = false;
      const extending = extendOn(store, held, 60_000);
      const acquiring = acquireOn(other, wanted, { limit: 400 });
      extending.catch(() => undefined);
      acquiring.catch(() => (isUnsent = true));
      await until(async () => isUnsent || Number(await server.value(WAITING)) >= 2);
      if (!isUnsent) await delay(500);
      await looker.query('commit');
      // The server ends the wait for a row after two seconds.
      if (isUnsent || performance.now() - locked > 1_800) {
        await Promise.allSettled([extending, acquiring]);
        return false;
      }
      await expect(extending).resolves.toBe(false);
      await expect(acquiring).rejects.toThrow(/ms too late, and did nothing/);
      expect(await store.read([...keys])).toEqual([undefined, undefined]);
      return true;
    };
    let round = 0;
    while (!(await waits(round))) expect(++round).toBeLessThan(10);
  });

  test('a table or procedure of others with a name of ours is refused, and left as it is', async () => {
    await server.query('create table mine_ticks (n int); insert into mine_ticks values (7)');
    await server.query(`create procedure mine_turn_v${SCHEMA_VERSION}() select 7`);
    await expect(openStore('mine_')).rejects.toThrow(
      /not its own: (table mine_ticks, procedure mine_turn_v\d+|procedure mine_turn_v\d+, table mine_ticks)\. Give another `tablePrefix`/,
    );
    expect(await server.value('select n from mine_ticks')).toBe(7);
    const made =
      "select count(*) from information_schema.tables where table_schema = 'app' and table_name like 'mine\\\\_%'";
    expect(await server.value(made)).toBe(1);
  });

  test('a call that is killed while it waits for a row leaves no other row locked', async () => {
    const store = await openStore();
    const both = new Lease(['killed:a', 'killed:b'], 'me', 60_000);
    await acquireOn(store, both);
    await releaseOn(store, both);
    const looker = await server.client();
    await looker.query("begin; select k from redlock_locks where k = 'lock:killed:b' for update");
    const acquiring = acquireOn(store, new Lease(both.keys, 'me', 60_000)).catch((error: Error) => error);
    await until(async () => Number(await server.value(WAITING)) >= 1);
    await server.query(`kill query ${String(await server.value(WAITING.replace('count(*)', 'id')))}`);
    expect(await acquiring).toMatchObject({ code: 'ER_QUERY_INTERRUPTED' });
    const free = "select k from redlock_locks where k = 'lock:killed:a' for update skip locked";
    await until(async () => (await server.value(free)) !== undefined, 10_000);
    await looker.query('rollback');
  });

  test('a row that another transaction holds fails only the requests for its key', async () => {
    const store = await openStore();
    const lease = (key: string): Lease => new Lease([`parted:${key}`], 'me', 60_000);
    const [stuck, kept, ended] = [lease('stuck'), lease('kept'), lease('ended')];
    for (const each of [stuck, kept, ended]) await acquireOn(store, each);
    const looker = await server.client();
    await looker.query("begin; select k from redlock_locks where k = 'lock:parted:stuck' for update");
    const answers = await Promise.allSettled([
      extendOn(store, stuck, 60_000),
      extendOn(store, kept, 60_000),
      releaseOn(store, ended),
      acquireOn(store, lease('new')),
    ]);
    expect(answers).toMatchObject([
      { status: 'rejected', reason: { code: 'ER_LOCK_WAIT_TIMEOUT' } },
      { status: 'fulfilled', value: true },
      { status: 'fulfilled' },
      { status: 'fulfilled', value: { granted: true } },
    ]);
    await looker.query('rollback');
  });

  test('a release by force that the server rolls back because of a deadlock is sent again', async () => {
    const store = await openStore();
    const lease = new Lease(['deadlock'], 'me', 60_000, undefined, { mode: 'shared' });
    await acquireOn(store, lease);
    const looker = await server.client();
    // The server rolls the transaction with fewer changes back.
    await looker.query(
      'create table changes (n int) engine=innodb; begin; insert into changes select seq from seq_1_to_200',
    );
    await looker.query("select k from redlock_holders where k = 'lock:deadlock' for update");
    const releasing = store.forceRelease('deadlock', [lease.id]);
    await until(
      async () => Number(await server.value(WAITING.replace('redlock_locks', 'force_release'))) >= 1,
    );
    await looker.query("select k from redlock_locks where k = 'lock:deadlock' for update");
    await looker.query('commit');
    await expect(releasing).resolves.toEqual([lease.id]);
    expect(await store.read(lease.keys)).toEqual([undefined]);
  });

  test('a key that is held by nobody whom its rows name is refused with an error, and not granted', async () => {
    const store = await openStore();
    const reader = new Lease(['nameless'], 'me', 60_000, undefined, { mode: 'shared' });
    await acquireOn(store, reader);
    await server.query("delete from redlock_holders where k = 'lock:nameless'");
    await expect(acquireOn(store, new Lease(reader.keys, 'me', 60_000))).rejects.toThrow(
      'the key is held, but no row names its holder',
    );
  });

  test('a waiter behind the mark of an earlier one is answered while others have locked the row of the key', async () => {
    const store = await openStore();
    const reader = new Lease(['marked'], 'me', 60_000, undefined, { mode: 'shared' });
    await acquireOn(store, reader);
    const waiter = (number: number): WaiterId => ({
      keys: reader.keys,
      mode: 'exclusive',
      process: 'p',
      number,
      owner: 'me',
    });
    expect(await store.holdBack(waiter(1), 1_000)).toBe(true);
    const looker = await server.client();
    await looker.query("begin; select k from redlock_locks where k = 'lock:marked' for update");
    expect(await store.holdBack(waiter(2), 500)).toBe(false);
    await looker.query('rollback');
  });

  test('the statement that waits for messages ends in time, also if its looks take all of that time', async () => {
    await openStore();
    const call = new SchemaNames().in("call {listen}('p', '', 0.1, 0)");
    const answer = await server.query(`set statement max_statement_time = 20 for ${call}`);
    expect((answer as unknown[])[0]).toEqual([['[]']]);
  });

  test('a store makes the row of `state` again if it is missing, at its start and in a check of the server', async () => {
    await openStore();
    await server.query('delete from redlock_state');
    const store = await openStore();
    expect(await acquireOn(store, new Lease(['state:first'], 'me', 60_000))).toMatchObject({ granted: true });
    await server.query('delete from redlock_state');
    expect(await store.check()).toMatchObject({ state: 'voting' });
    expect(await acquireOn(store, new Lease(['state:second'], 'me', 60_000))).toMatchObject({
      granted: true,
    });
  });

  test('the script for the tables makes no account for an unknown role', async () => {
    expect(() => server.script(schemaScript(new SchemaNames('role_'), 'nobody'))).toThrow(/ERROR/);
    expect(await server.value("select count(*) from mysql.user where user = 'nobody'")).toBe(0);
  });

  test('the script for the tables names objects of others with names of ours, and touches nothing', async () => {
    await server.query('create table foreign_state (one tinyint primary key)');
    await server.query(`create procedure foreign_turn_v${SCHEMA_VERSION}() select 7`);
    await server.query("create user guest@'%' identified by 'secret'");
    let said = '';
    try {
      server.script(schemaScript(new SchemaNames('foreign_'), 'guest'));
    } catch (error) {
      said = String((error as { stdout: Buffer }).stdout);
    }
    expect(said).toContain('not its own: ');
    expect(said).toContain('table foreign_state');
    expect(said).toContain(`procedure foreign_turn_v${SCHEMA_VERSION}`);
    expect(await server.value('select count(*) from foreign_state')).toBe(0);
    const made = "select count(*) from information_schema.tables where table_name like 'foreign\\\\_%'";
    expect(await server.value(made)).toBe(1);
    expect(await server.query("show grants for guest@'%'")).toHaveLength(1);
  });

  test('the tokens of all permits are larger than those that were removed, also after the clock was set back', async () => {
    const store = await openStore();
    // The clock was an hour ahead when the tokens were given and when they were removed.
    const forgotten = Math.floor((Date.now() / 1_000 + 3_600) * STEPS_PER_SECOND);
    await server.query(`update redlock_state set forgotten = ${forgotten}`);
    for (const _ of [1, 2]) {
      const lease = new Lease(['permits'], 'me', 60_000, undefined, { mode: 'permits', permits: 2 });
      const { token = 0 } = (await acquireOn(store, lease)) as { token?: number };
      expect(token).toBeGreaterThan(forgotten);
    }
  });

  test('settings of the server for the transactions and statements of applications change nothing', async () => {
    const set = 'completion_type = {}, global tx_read_only = {}, global max_statement_time = {}';
    await server.query(`set global ${set.replaceAll('{}', '1')}`);
    try {
      const store = await openStore();
      for (const key of ['setting:a', 'setting:b']) {
        const lease = new Lease([key], 'me', 60_000);
        expect(await acquireOn(store, lease)).toMatchObject({ granted: true });
        expect(await extendOn(store, lease, 60_000)).toBe(true);
        await releaseOn(store, lease);
      }
      expect(await store.check()).toMatchObject({ state: 'voting' });
      store.listen(
        { keys: ['setting:a'], mode: 'exclusive', process: 'p', number: 1, owner: 'me' },
        () => undefined,
      );
      await delay(1_500);
      expect(store.subscribed).toBe(true);
    } finally {
      await server.query(`set global ${set.replaceAll('{}', '0')}`);
    }
  });

  test('a server causes a warning, at the start and in a check, when it may lose confirmed data', async () => {
    await server.query('set global innodb_flush_log_at_trx_commit = 2');
    try {
      const terms = newTerms();
      const store = await openStore('redlock_', terms);
      const warning = /innodb_flush_log_at_trx_commit is 2, .*; set it to 1$/;
      expect(terms.warnings).toEqual([expect.stringMatching(warning)]);
      expect(terms.warnings[0]).toContain(store.name);
      expect(await store.check()).toEqual({ state: 'voting', warnings: [expect.stringMatching(warning)] });
    } finally {
      await server.query('set global innodb_flush_log_at_trx_commit = 1');
    }
  });

  // `init_connect` comes after the handshake, for users without SUPER. A key arrives as bytes in some calls, and in others as
  // text, which the server reads in the character set of the session.
  test.each(['latin1', 'utf8'])(
    'a key outside of ASCII has one row, whatever `init_connect` sets: %s',
    async (charset) => {
      await server.query(
        "create user if not exists plain@'%' identified by 'secret'; grant all privileges on app.* to plain@'%'",
      );
      await server.query(`set global init_connect = 'set names ${charset}'`);
      try {
        const openPlain = (): Promise<MysqlStore> => openStore('redlock_', newTerms(), 'plain');
        const [one, other] = [await openPlain(), await openPlain()];
        const keys = [`caf\u{e9}:${charset}`, `\u{1f512}:${charset}`];
        const all = keys.map((key) => new Lease([key], '\u{e9}\u{1f512}', 60_000));
        for (const lease of all) expect(await acquireOn(one, lease)).toMatchObject({ granted: true });
        // With a second request in the same statement, the keys are text.
        const rivals = [...keys, `another:${charset}`].map((key) =>
          acquireOn(other, new Lease([key], 'you', 60_000)),
        );
        expect(await Promise.all(rivals)).toMatchObject([
          { granted: false, holder: { owner: '\u{e9}\u{1f512}' } },
          { granted: false },
          { granted: true },
        ]);
        for (const lease of all) expect(await extendOn(one, lease, 60_000)).toBe(true);
        const listed: string[] = [];
        for await (const page of one.scan('')) listed.push(...page);
        expect(listed.filter((key) => key.endsWith(`:${charset}`)).toSorted()).toEqual(
          [`another:${charset}`, ...keys].toSorted(),
        );
        await Promise.all(all.map((lease) => releaseOn(one, lease)));
        expect(await other.read(keys)).toEqual([undefined, undefined]);
      } finally {
        await server.query("set global init_connect = ''");
      }
    },
  );

  test('a lock whose keys fit into no statement is refused with the remedy, and one whose keys fit is granted', async () => {
    const least = Number(await server.value('select @@global.max_allowed_packet'));
    await server.query('set global max_allowed_packet = 262144');
    try {
      const store = await openStore();
      const keys = (count: number): string[] =>
        Array.from({ length: count }, (_, index) => `${index}${'"'.repeat(1_000)}`);
      expect(store.refuses(keys(75))).toMatch(
        /^a statement with its keys has \d+ bytes, and the server allows 262144 \(max_allowed_packet\); lock fewer/,
      );
      const fitting = keys(60);
      expect(store.refuses(fitting)).toBeUndefined();
      const lease = new Lease(fitting, 'me', 60_000);
      expect(await acquireOn(store, lease)).toMatchObject({ granted: true });
      expect(await extendOn(store, lease, 60_000)).toBe(true);
      await releaseOn(store, lease);
      expect(await store.read(fitting.slice(0, 1))).toEqual([undefined]);
    } finally {
      await server.query(`set global max_allowed_packet = ${least}`);
    }
  });

  test('acquisitions that share a statement are answered one by one: granted, refused, late, repeated, ended, or the second for a key', async () => {
    const store = await openStore();
    const lease = (key: string): Lease => new Lease([key], 'me', 60_000);
    const [held, ended, again] = [lease('batch:held'), lease('batch:ended'), lease('batch:again')];
    for (const each of [held, ended, again])
      expect(await acquireOn(store, each)).toMatchObject({ granted: true });
    await releaseOn(store, ended);
    // While this statement waits for a row, the next requests gather for one statement.
    const looker = await server.client();
    await looker.query("begin; select k from redlock_locks where k = 'lock:batch:again' for update");
    const first = acquireOn(store, again);
    await until(async () => Number(await server.value(WAITING)) >= 1);
    const free = lease('batch:free');
    const answers = Promise.allSettled([
      first,
      acquireOn(store, free),
      acquireOn(store, lease('batch:held')),
      acquireOn(store, ended),
      acquireOn(store, again),
      acquireOn(store, lease('batch:twice')),
      acquireOn(store, lease('batch:twice')),
      releaseOn(store, held),
      acquireOn(store, lease('batch:late'), { limit: 1 }),
    ]);
    await delay(20);
    await looker.query('rollback');
    const settled = await answers;
    const granted = { status: 'fulfilled', value: { granted: true } };
    expect(settled).toMatchObject([
      granted,
      granted,
      // The release of the same statement comes first.
      granted,
      { status: 'rejected', reason: { message: expect.stringContaining('has ended') } },
      granted,
      granted,
      { status: 'fulfilled', value: { granted: false } },
      { status: 'fulfilled' },
      { status: 'rejected' },
    ]);
    expect(await store.read(['batch:free', 'batch:late'])).toMatchObject([
      { holders: [{ id: free.id, owner: 'me' }] },
      undefined,
    ]);
  });

  test('the query of docs/mysql.md finds the procedures of earlier versions, and no others', async () => {
    await openStore();
    await server.query(`
      create procedure redlock_turn_v1() comment 'nestjs-redlock' select 1;
      create procedure redlock_mine_v1() select 1;
      create procedure others_turn_v1() comment 'nestjs-redlock' select 1;`);
    const [, query = ''] =
      /```sql\n(select concat\('drop procedure[^;]*;[^;]*;)\n```/.exec(
        await readFile('docs/mysql.md', 'utf8'),
      ) ?? [];
    expect(await server.query(query)).toEqual([['drop procedure `redlock_turn_v1`;']]);
  });

  test('locks with another table prefix are other locks, and the second start changes nothing', async () => {
    const [one, two, again] = [await openStore(), await openStore('two_'), await openStore('two_')];
    const leases = [one, two].map(() => new Lease(['same'], 'me', 60_000));
    expect(await acquireOn(one, leases[0]!)).toMatchObject({ granted: true });
    expect(await acquireOn(two, leases[1]!)).toMatchObject({ granted: true });
    expect(await acquireOn(again, new Lease(['same'], 'me', 60_000))).toMatchObject({ granted: false });
  });
});
