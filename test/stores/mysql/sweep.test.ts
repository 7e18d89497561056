import { afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import type { LockKind } from '../../../lib/core/lock-mode.js';
import { MysqlStore } from '../../../lib/stores/mysql/mysql-store.js';
import { OwnClient } from '../../../lib/stores/mysql/own-client.js';
import { SchemaNames } from '../../../lib/stores/mysql/schema.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { hasMysql, type MysqlServer, startMysqlServer } from '../../support/mysql-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

// The removal of old rows, and lists of locks. Both use a connection of their own.

const TTL = 600_000;

/** A time on the server's clock, so many seconds ago. */
const ago = (seconds: number): string => `(unix_timestamp(now(6)) - ${seconds}) * 1000000`;

(hasMysql() ? describe : describe.skip)('old rows in MariaDB', () => {
  let server: MysqlServer;
  let store: MysqlStore;

  beforeAll(async () => {
    server = await startMysqlServer();
    store = await openStore();
  });

  afterEach(() => void jest.restoreAllMocks());

  async function openStore(): Promise<MysqlStore> {
    const opened = new MysqlStore({ uri: server.uri }, newTerms());
    cleanUpAfterTests(() => opened.close());
    await opened.connect();
    return opened;
  }

  const count = async (from: string): Promise<number> =>
    Number(await server.value(`select count(*) from ${from}`));

  /** Opens a store that sweeps at once. */
  async function sweep(): Promise<void> {
    // The claim of the previous process is over.
    await server.query('update redlock_state set until = 0');
    jest.spyOn(Math, 'random').mockReturnValue(0);
    await openStore();
    jest.restoreAllMocks();
  }

  test('the sweep removes only rows with an old end and an old token, and waits for no row that others have locked', async () => {
    const lease = (key: string): Lease => new Lease([key], 'me', TTL);
    const [held, fresh] = [lease('held'), lease('fresh')];
    await acquireOn(store, held);
    await acquireOn(store, fresh);
    await releaseOn(store, fresh);
    await server.query(`
      insert into redlock_locks (k, token, ends) values
        ('ahead of the clock', (unix_timestamp() + 3600) * 1048576, ${ago(61)}), ('recent', 1, ${ago(5)}), ('waited for', 1, ${ago(61)});
      insert into redlock_waiters (k, waiter, process, mode, owner, came, seen)
        values ('waited for', 'w', 'c', 'exclusive', 'o', ${ago(0)}, ${ago(0)});
      insert into redlock_locks (k, token, ends, mode) select concat('old ', seq), seq, ${ago(61)}, 'permits' from seq_1_to_2500;
      insert into redlock_slots select concat('old ', seq), 0, seq from seq_1_to_2500;
      insert into redlock_waiters (k, waiter, process, mode, owner, came, seen)
        select concat('old ', seq), 'w', 'c', 'shared', 'o', ${ago(200_000)}, ${ago(200_000)} from seq_1_to_10;
      insert into redlock_holders select concat('old ', seq), 'id', 'o', 1, 1, 0, 0, ${ago(61)} from seq_1_to_10;
      insert into redlock_holders select 'lock:held', concat('id ', seq), 'o', 1, 1, 0, 0, ${ago(61)} from seq_1_to_1200;
      insert into redlock_ticks select 'ticked', concat('s ', seq), 1, 'o', ${ago(1)} from seq_1_to_1200;`);
    const looker = await server.client();
    await looker.query("begin; select k from redlock_locks where k = 'old 7' for update");
    await looker.query("select k from redlock_holders where k = 'lock:held' and id = 'id 7' for update");
    await looker.query("select k from redlock_ticks where k = 'ticked' and schedule = 's 7' for update");
    await sweep();
    // The ticks are the last part.
    await until(async () => (await count('redlock_ticks')) === 1);
    expect(
      await server.value('select convert(group_concat(k order by k) using utf8mb4) from redlock_locks'),
    ).toBe('ahead of the clock,lock:fresh,lock:held,old 7,recent,waited for');
    expect(
      await server.query(
        "select convert(k using utf8mb4) from redlock_slots union all select convert(k using utf8mb4) from redlock_waiters where seen > 0 and k <> 'waited for'",
      ),
    ).toEqual([['old 7'], ['old 7']]);
    expect(await server.query('select convert(id using utf8mb4) from redlock_holders')).toEqual([['id 7']]);
    expect(await server.value('select forgotten from redlock_state')).toBe(2_500);
    expect(await extendOn(store, held, TTL)).toBe(true);
    await looker.query('rollback');
  });

  test('a key whose row was removed gets a larger token, even if the clock was set back', async () => {
    const ahead = Number(await server.value('select floor((unix_timestamp() + 3600) * 1048576)'));
    await server.query(`update redlock_state set forgotten = ${ahead}`);
    const lease = new Lease(['forgotten'], 'me', TTL);
    expect(await acquireOn(store, lease)).toMatchObject({ granted: true, token: ahead + 1 });
  });

  test('a process may remove rows when the claim of another one is over, or longer than a claim can be', async () => {
    // No store sweeps these tables any more, and so none takes the claim.
    const tablePrefix = 'unused_';
    const unused = new MysqlStore({ uri: server.uri, tablePrefix }, newTerms());
    await unused.connect();
    await unused.close();
    const claim = new SchemaNames(tablePrefix).in("call {take_sweep_turn}('me', 20000000)");
    const claims: unknown[] = [];
    // A clock that was set back by an hour leaves the last of these ends.
    for (const ends of [1, -15, -3_600]) {
      await server.query(`update unused_state set process = 'ended', until = ${ago(ends)}`);
      claims.push(((await server.query(claim)) as unknown[][][])[0]?.[0]?.[0]);
    }
    expect(claims).toEqual([1, 0, 1]);
  });

  // A sweep has locked this row while it commits.
  test('locks of new keys do not wait for the row of `state`', async () => {
    const looker = await server.client();
    await looker.query('begin; select one from redlock_state for update');
    const lease = (key: string, kind?: LockKind): Lease => new Lease([key], 'me', TTL, undefined, kind);
    expect(await acquireOn(store, lease('new'))).toMatchObject({ granted: true });
    const kinds = [undefined, undefined, { mode: 'permits', permits: 2 }, { mode: 'shared' }] as const;
    const asked = kinds.map((kind, index) => acquireOn(store, lease(`new ${index}`, kind)));
    for (const reply of await Promise.all(asked)) expect(reply).toMatchObject({ granted: true });
    await looker.query('rollback');
  });

  test.each([
    ['a list', /limit 1000\n/, () => store.scan('').next()],
    ['a sweep', /sweep_locks/, () => sweep()],
  ])('%s that takes long leaves the connection for locks free', async (_, slow, begin) => {
    const run = OwnClient.prototype.run;
    const sent = jest.spyOn(OwnClient.prototype, 'run').mockImplementation(function (
      this: OwnClient,
      text,
      values,
    ) {
      return slow.test(text) ? run.call(this, 'select sleep(20)') : run.call(this, text, values);
    });
    const begun = begin().catch(() => undefined);
    await until(async () => (await count("information_schema.processlist where state = 'User sleep'")) > 0);
    const lease = new Lease(['beside'], 'me', TTL);
    expect(await acquireOn(store, lease)).toMatchObject({ granted: true });
    await releaseOn(store, lease);
    expect(await count("information_schema.processlist where state = 'User sleep'")).toBe(1);
    sent.mockRestore();
    await server.query(
      "select id into @slow from information_schema.processlist where state = 'User sleep'; kill @slow",
    );
    await begun;
  });
});
