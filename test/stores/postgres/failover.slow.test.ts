import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { LockLostError } from '../../../lib/core/errors.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { extendUntilConfirmed } from '../lock-lifetime.js';
import { contendOver, DURATION, LEAST, orphansOn } from './contention.js';

// A primary dies and its standby takes over (streaming replication, `pg_promote`). Clients connect to an address that leads to
// the present primary. In these tests a proxy has that address, because `pg` accepts one host only.

const TTL = 60_000;
const once: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
const patiently: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

let template: PostgresServer;
let pair: Pair | undefined;

beforeAll(async () => {
  template = await startPostgresServer();
  await template.shutDown();
});
afterEach(() => pair?.stop());
afterAll(() => template.stop());

/** A primary and its standby. */
interface Pair {
  readonly standby: PostgresServer;
  /** The connection of the standby to the primary. */
  readonly link: TcpProxy;
  /** The address to which clients connect. */
  readonly address: TcpProxy;
  /** Kills the primary, promotes the standby, and leads the address to it. */
  failOver(): Promise<void>;
  stop(): Promise<void>;
}

async function startPair(replication: 'synchronous' | 'asynchronous'): Promise<Pair> {
  const primary = await startPostgresServer({ copyOf: template });
  const link = await startTcpProxy(primary);
  const standby = await startPostgresServer({
    copyOf: template,
    standby: true,
    settings: [`primary_conninfo=host=${link.host} port=${link.port} user=postgres application_name=standby`],
  });
  const looker = await primary.client();
  if (replication === 'synchronous') {
    await looker.query(`alter system set synchronous_standby_names = 'standby'`);
    await looker.query('select pg_reload_conf()');
  }
  const state = replication === 'synchronous' ? 'sync' : 'async';
  const following = `select from pg_stat_replication where state = 'streaming' and sync_state = '${state}'`;
  await until(async () => (await looker.query(following)).rowCount === 1);
  const address = await startTcpProxy(primary);
  pair = {
    standby,
    link,
    address,
    async failOver() {
      await primary.kill();
      const promoting = await standby.client();
      await promoting.query('select pg_promote()');
      address.redirect(standby);
    },
    async stop() {
      await Promise.all([address.close(), link.close()]);
      await Promise.all([primary.stop(), standby.stop()]);
    },
  };
  return pair;
}

async function newProcess({ address }: Pair, nodeTimeout: number = PATIENT.nodeTimeout): Promise<Redlock> {
  const connectionString = `postgres://postgres@${address.host}:${address.port}/postgres`;
  const store = new PostgresStore({ connectionString }, newTerms());
  cleanUpAfterTests(() => store.close());
  await store.connect();
  return redlockOver([store], { nodeTimeout });
}

describe('a fail-over to a synchronous standby (synchronous_standby_names)', () => {
  test('after a fail-over, a synchronous standby keeps every lock, refuses held locks to other callers, and gives larger tokens', async () => {
    const both = await startPair('synchronous');
    const [alice, bob] = [await newProcess(both), await newProcess(both)];
    const lock = await alice.acquire(['kept'], once);
    const freed = await alice.acquire(['freed'], once);
    await freed.release();
    await both.failOver();
    await extendUntilConfirmed(lock);
    const next = await bob.acquire(['freed'], patiently);
    expect(next.fencingToken).toBeGreaterThan(freed.fencingToken);
    await expect(bob.acquire(['kept'], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
    await lock.release();
    await (await bob.acquire(['kept'], patiently)).release();
    await next.release();
    await Promise.all([alice.close(), bob.close()]);
  });

  test('a primary with a synchronous standby grants no lock before the standby has stored it', async () => {
    const both = await startPair('synchronous');
    const [alice, bob] = [await newProcess(both, 1_000), await newProcess(both)];
    both.link.blackHole();
    await expect(alice.acquire(['unknown'], once)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await both.failOver();
    const lock = await bob.acquire(['unknown'], patiently);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await Promise.all([alice.close(), bob.close()]);
  });

  test('a fail-over to a synchronous standby never lets two contenders hold a lock together, and their tokens grow', async () => {
    const both = await startPair('synchronous');
    // The ttl outlasts the fail-over: a client that holds a lock when the primary dies still holds it after the
    // fail-over.
    const [hold, ttl] = [1_200, 4_000];
    const { overlaps, tokenFaults, late, acquisitions } = await contendOver(
      () => newProcess(both),
      async () => {
        await new Promise((resolve) => setTimeout(resolve, DURATION / 3));
        await both.failOver();
      },
      { hold, ttl },
    );
    expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
    expect(acquisitions).toBeGreaterThan(LEAST);
    expect(await orphansOn(both.standby, ttl)).toEqual([]);
  });
});

// No client can prevent this second grant; docs/postgres.md warns of it. The test also shows that the tests above can
// fail.
test('a fail-over to an asynchronous standby that lacks a grant allows two holders for a time', async () => {
  const both = await startPair('asynchronous');
  const [alice, bob] = [await newProcess(both), await newProcess(both)];
  both.link.blackHole();
  // A renewal after the fail-over would report the loss too early for this test.
  const lost = await alice.acquire(['lost'], { ...once, renew: false });
  await both.failOver();
  const lock = await bob.acquire(['lost'], patiently);
  expect([lost.isHeld(), lock.isHeld()]).toEqual([true, true]);
  // A resource that checks tokens refuses the first holder.
  expect(lock.fencingToken).toBeGreaterThan(lost.fencingToken);
  await expect(extendUntilConfirmed(lost)).rejects.toBeInstanceOf(LockLostError);
  await Promise.all([lost.release(), lock.release()]);
  await Promise.all([alice.close(), bob.close()]);
});
