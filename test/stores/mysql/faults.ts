import { beforeAll, describe, expect, test } from '@jest/globals';
import { execFileSync } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import type { StoreTerms } from '../../../lib/core/store-factory.js';
import { MysqlStore } from '../../../lib/stores/mysql/mysql-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { ForgetfulNetwork } from '../../support/forgetful-network.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { type MysqlProgram, type MysqlServer, startMysqlServer } from '../../support/mysql-server.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import type { TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { FaultContract, freshKey, leaseOn, once, RELEASED_WITHIN, TTL, waiting } from '../faults-contract.js';
import { extendUntilConfirmed } from '../lock-lifetime.js';
import { contendOver, DURATION, LEAST } from '../postgres/contention.js';

// Locks while the server dies, hangs or refuses to write, and while connections to it are cut.

/** The condition of a row that is held. */
const HELD = `state <> 'free' and ends > unix_timestamp(now(6)) * 1000000`;

/** Runs of the procedures for locks on the server. */
const RUNNING = `select count(*) from information_schema.processlist where command in ('Query', 'Execute') and info like '%redlock_locks%' and id <> connection_id()`;

/** Statements that wait for messages. */
const LISTENING = `select count(*) from information_schema.processlist where command in ('Query', 'Execute') and info like '%sleep%' and id <> connection_id()`;

/** Milliseconds that `close` may take on a busy machine. Its own limit is a second; a silent connection ends after minutes. */
const CLOSED_WITHIN_MS = 30_000;

/** Tests locks in this server while it fails. */
export function faultsOn(program: MysqlProgram): void {
  describe(`locks in ${program.name} that fails`, () => {
    let server: MysqlServer;
    let proxy: TcpProxy;

    const faults = new FaultContract(program.name, {
      start: () => startMysqlServer({ program }),
      open: ({ port }, terms) => openStore(port, terms),
      isHeld: async (key, on) =>
        (await on.value(`select count(*) from redlock_locks where k = 'lock:${key}' and ${HELD}`)) === 1,
    });

    beforeAll(() => void ({ server, proxy } = faults));

    async function openStore(
      port: number = proxy.port,
      terms: StoreTerms = newTerms(),
      user = 'app',
    ): Promise<MysqlStore> {
      const store = new MysqlStore({ uri: server.uriOf(user, 'app', port) }, terms);
      cleanUpAfterTests(() => store.close());
      await store.connect();
      return store;
    }

    async function newProcess(port?: number, nodeTimeout: number = PATIENT.nodeTimeout): Promise<Redlock> {
      return redlockOver([await openStore(port)], { nodeTimeout });
    }

    const isHeld = (key: string): Promise<boolean> => faults.isHeld(key);

    test('a store leaves no orphaned lock when the connection is cut while an acquire waits for a row (S27)', async () => {
      const key = freshKey();
      const redlock = await newProcess(proxy.port, 1_000);
      await (await redlock.acquire([key], { ...waiting })).release();
      const looker = await server.client();
      await looker.query('begin');
      await looker.query(`select k from redlock_locks where k = 'lock:${key}' for update`);
      const acquiring = redlock.acquire([key], once);
      acquiring.catch(() => undefined);
      await until(async () => (await server.value(RUNNING)) !== 0);
      proxy.cut();
      await expect(acquiring).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      // The server continues with the call although its client is gone; the call has a deadline.
      await looker.query('commit');
      await until(async () => (await server.value(RUNNING)) === 0);
      await until(async () => !(await isHeld(key)), RELEASED_WITHIN);
      await delay(300);
      expect(await isHeld(key)).toBe(false);
      await redlock.close();
    });

    faults.losesReply();
    faults.renewsAfterCut();
    faults.releasesLate();
    faults.restarts();
    faults.hangs();

    test('a row that another transaction holds makes an acquire fail after two seconds, and stores nothing', async () => {
      const store = await openStore(server.port);
      const key = freshKey();
      await releaseOn(store, await granted(store, leaseOn(key)));
      const looker = await server.client();
      await looker.query('begin');
      await looker.query(`select k from redlock_locks where k = 'lock:${key}' for update`);
      await expect(acquireOn(store, leaseOn(key))).rejects.toMatchObject({ code: 'ER_LOCK_WAIT_TIMEOUT' });
      await looker.query('rollback');
      expect(await isHeld(key)).toBe(false);
      await granted(store, leaseOn(key));
    });

    test('an acquire that the server rolls back because of a deadlock is sent again, and granted', async () => {
      const store = await openStore(server.port);
      const [first, second] = [freshKey(), freshKey()];
      for (const key of [first, second]) await releaseOn(store, await granted(store, leaseOn(key)));
      const looker = await server.client();
      // The server rolls the transaction with fewer changes back.
      await looker.query('create table changes (n int) engine=innodb; begin');
      await looker.query(`insert into changes values ${Array.from({ length: 200 }, () => '(1)').join(', ')}`);
      await looker.query(`select k from redlock_locks where k = 'lock:${second}' for update`);
      const acquiring = acquireOn(store, new Lease([first, second], 'me', TTL));
      await until(async () => (await server.value(RUNNING)) !== 0);
      const closing = looker.query(`select k from redlock_locks where k = 'lock:${first}' for update`);
      await closing;
      await looker.query('commit');
      await expect(acquiring).resolves.toMatchObject({ granted: true });
      expect(await isHeld(first)).toBe(true);
    });

    test('a server without a free connection keeps held locks going, and a new process learns the remedy', async () => {
      await server.query("create user few@'%' identified by 'secret'; grant all on app.* to few@'%'");
      const redlock = redlockOver([await openStore(server.port, newTerms(), 'few')], PATIENT);
      const key = freshKey();
      const lock = await redlock.acquire([key], once);
      const admin = await server.client();
      await admin.query(`set global max_connections = 10`);
      const fillers: unknown[] = [];
      await until(() =>
        server
          .client(server.uriOf('few'))
          .then((each) => void fillers.push(each))
          .then(
            () => false,
            () => true,
          ),
      );
      await expect(openStore(server.port, newTerms(), 'few')).rejects.toThrow(/raise max_connections/);
      await extendUntilConfirmed(lock);
      // The second connection, for messages, is not available: the waiter polls.
      const next = redlock.acquire([key], waiting);
      await delay(100);
      await lock.release();
      await (await next).release();
      await admin.query(`set global max_connections = 151`);
      await redlock.close();
    });

    // A server that is read-only still writes for a user with all rights.
    test.each(['few', 'app'])(
      'a server that becomes read-only while locks are held refuses acquires with the reason, and is used again later (%s)',
      async (user) => {
        await server.query(
          "create user if not exists few@'%' identified by 'secret'; grant all on app.* to few@'%'",
        );
        const terms = newTerms();
        const store = await openStore(server.port, terms, user);
        const held = await granted(store, leaseOn(freshKey()));
        await server.query('set global read_only = 1');
        await expect(acquireOn(store, leaseOn(freshKey()))).rejects.toThrow(/read[-_]only/);
        await until(async () => {
          const error = await acquireOn(store, leaseOn(freshKey())).catch((thrown: Error) => thrown);
          return (
            error instanceof Error &&
            error.message.includes('read_only is on, as on a replica; give the primary')
          );
        });
        expect(terms.events).toContain('lost');
        await server.query('set global read_only = 0');
        await until(() => store.available);
        expect(await store.read(held.keys)).toMatchObject([{ holders: [{ id: held.id }] }]);
        await granted(store, leaseOn(freshKey()));
      },
    );

    test('no two contenders hold a lock together, tokens grow, and no orphan is left, while the server is killed, hangs and cuts connections', async () => {
      const { overlaps, tokenFaults, late, acquisitions } = await contendOver(
        () => newProcess(server.port),
        async () => {
          await delay(1_000);
          await server.restart();
          await delay(500);
          server.pause();
          await delay(1_400);
          server.resume();
          const looker = await server.client();
          for (const end = performance.now() + DURATION / 4; performance.now() < end; await delay(100)) {
            const [[row]] = (await looker.query(
              `select id from information_schema.processlist where user = 'app' and id <> connection_id() order by rand() limit 1`,
            )) as unknown as [[{ id: number } | undefined]];
            if (row) await looker.query(`kill ${row.id}`).catch(() => undefined);
          }
        },
        { hold: 60, ttl: 1_000 },
      );
      expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
      // These servers restart more slowly than PostgreSQL.
      expect(acquisitions).toBeGreaterThan(LEAST / 3);
      await delay(1_000);
      expect(
        await server.value(`select count(*) from redlock_locks where ${HELD} and k like 'lock:contended%'`),
      ).toBe(0);
    });

    test.each(['silent', 'reset'] as const)(
      'the first requests succeed over a new connection, and no loss is reported, when the network has forgotten the idle connections (%s)',
      async (mode) => {
        const network = new ForgetfulNetwork(server.port);
        cleanUpAfterTests(async () => network.close());
        const terms = newTerms();
        const store = await openStore(await network.port(), terms);
        const [kept, released] = [leaseOn(freshKey()), leaseOn(freshKey())];
        for (const lease of [kept, released]) await granted(store, lease);
        // The store's own test of the connection, once a second, is traffic, too.
        await until(() => store.idle);
        network.forget(mode);
        const next = leaseOn(freshKey());
        const [reply, extended] = await Promise.all([
          acquireOn(store, next, { limit: 2_000 }),
          extendOn(store, kept, TTL),
          releaseOn(store, released),
        ]);
        // A new connection that takes longer than a second is reported.
        const isQuick = performance.now() - network.usedAt < 1_000;
        expect(reply).toMatchObject({ granted: true });
        expect(extended).toBe(true);
        expect(await store.read([kept, next, released].map(({ keys }) => keys[0] ?? ''))).toEqual([
          expect.objectContaining({ mode: 'exclusive' }),
          expect.objectContaining({ mode: 'exclusive' }),
          undefined,
        ]);
        expect(isQuick ? terms.events : ['ready']).toEqual(['ready']);
      },
    );

    test.each<readonly [string, (store: MysqlStore, pause: () => void) => Promise<unknown>]>([
      ['is connected and idle', (store) => store.connect()],
      [
        'waits for an answer',
        async (store, pause) => {
          await store.connect();
          pause();
          return begin(acquireOn(store, leaseOn(freshKey())));
        },
      ],
      [
        'waits for messages',
        async (store, pause) => {
          await store.connect();
          store.listen(
            { keys: ['a'], mode: 'exclusive', process: 'p', number: 1, owner: 'me' },
            () => undefined,
          );
          await until(async () => (await server.value(LISTENING)) !== 0);
          pause();
        },
      ],
      [
        'is connecting',
        async (store, pause) => {
          pause();
          return begin(store.connect());
        },
      ],
      [
        'opens its connection for lists',
        async (store, pause) => {
          await store.connect();
          pause();
          return begin(store.scan('').next());
        },
      ],
    ])(
      '`close` settles, and ends all work, when the server is silent while the store %s',
      async (_, work) => {
        const store = new MysqlStore({ uri: server.uri }, newTerms());
        try {
          const begun = await work(store, () => server.pause());
          server.pause();
          const since = performance.now();
          await store.close();
          expect(performance.now() - since).toBeLessThan(CLOSED_WITHIN_MS);
          const outcome = begun instanceof Work ? await begun.outcome : new Error('no work');
          expect(outcome).toBeInstanceOf(Error);
        } finally {
          server.resume();
        }
      },
    );

    (canMount() ? test : test.skip)(
      'a full disk makes acquires fail with LOCK_UNAVAILABLE until there is room again',
      async () => {
        const full = await startMysqlServer({
          program,
          volume: 260,
          settings: ['innodb-autoextend-increment=1'],
        });
        const store = new MysqlStore({ uri: full.uri }, newTerms());
        cleanUpAfterTests(() => store.close());
        await store.connect();
        const redlock = redlockOver([store], { nodeTimeout: 2_000 });
        const before = await redlock.acquire(['kept'], { ...waiting, ttl: 10_000, renew: false });
        execFileSync('sh', ['-c', 'cat /dev/zero > "$1" 2>/dev/null || true', 'fill', `${full.data}/filler`]);
        // The tables still have some free space, which these acquisitions use up.
        const refusals: unknown[] = [];
        let nextLong = 0;
        await until(async () => {
          const asked = Array.from({ length: 500 }, () =>
            redlock.acquire([`${nextLong++}${'x'.repeat(500)}`], once),
          );
          for (const outcome of await Promise.allSettled(asked))
            if (outcome.status === 'rejected') refusals.push(outcome.reason);
          return refusals.length > 0;
        }, 60_000);
        expect(refusals[0]).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
        execFileSync('rm', [`${full.data}/filler`]);
        const next = await redlock.acquire(['kept'], waiting);
        expect(before.isHeld()).toBe(false);
        expect(next.fencingToken).toBeGreaterThan(before.fencingToken);
        await next.release();
        await redlock.close();
        await full.stop();
      },
      120_000,
    );

    // This test shows that the test above can fail: `contendOver` reports overlaps when the server forgets locks.
    test('`contendOver` reports overlaps when the server forgets its locks (control)', async () => {
      const { overlaps } = await contendOver(
        () => newProcess(server.port),
        async () => {
          for (const end = performance.now() + DURATION - 1_500; performance.now() < end; await delay(40))
            await server.query(`update redlock_locks set state = 'free'`);
        },
        // Each hold is long, so that another process acquires during it even on a busy machine.
        { hold: 500, ttl: 2_000 },
      );
      expect(overlaps.length).toBeGreaterThan(0);
    });
  });
}

async function granted(store: MysqlStore, lease: Lease): Promise<Lease> {
  expect(await acquireOn(store, lease)).toMatchObject({ granted: true });
  return lease;
}

/** Work that waits for a silent server. */
class Work {
  constructor(readonly outcome: Promise<unknown>) {}
}

/** Resolves when the request of the work was sent. */
async function begin(work: Promise<unknown>): Promise<Work> {
  const outcome = work.catch((error: unknown) => error);
  await new Promise(setImmediate);
  return new Work(outcome);
}

/** `true` if this process may make a small volume. */
function canMount(): boolean {
  try {
    execFileSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
