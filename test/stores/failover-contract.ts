import { afterEach, expect, test } from '@jest/globals';
import { LockLostError } from '../../lib/core/errors.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { Store } from '../../lib/core/ports.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { redlockOver } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { PATIENT } from '../support/patience.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { extendUntilConfirmed } from './lock-lifetime.js';
import { contendOver, DURATION, LEAST } from './postgres/contention.js';

/** A server of a database that can be a primary or its replica. */
export interface Replicated {
  readonly host: string;
  readonly port: number;
  kill(): Promise<unknown>;
  stop(): Promise<unknown>;
}

/** A primary with a replica that follows it. */
export interface ReplicatedDatabase {
  readonly primary: Replicated;
  readonly replica: Replicated;
  /** The connection of the replica to the primary. */
  readonly link: TcpProxy;
  promote(): Promise<unknown>;
  /** Makes a store whose clients connect to the proxy. */
  newStore(address: TcpProxy): Store;
  /** The locks that the replica stores although all processes are closed, after this ttl. */
  orphans?(ttl: number): Promise<readonly string[]>;
}

const TTL = 60_000;
const once: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
const patiently: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

class Pair {
  constructor(
    readonly database: ReplicatedDatabase,
    /** Leads to the present primary. */
    private readonly address: TcpProxy,
  ) {}

  async newProcess(nodeTimeout: number = PATIENT.nodeTimeout): Promise<Redlock> {
    const store = this.database.newStore(this.address);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return redlockOver([store], { nodeTimeout });
  }

  /** Kills the primary, promotes the replica, and leads the address to it. */
  async failOver(): Promise<void> {
    await this.database.primary.kill();
    await this.database.promote();
    this.address.redirect(this.database.replica);
  }

  async stop(): Promise<void> {
    const { primary, replica, link } = this.database;
    await Promise.all([this.address.close(), link.close()]);
    await Promise.all([primary.stop(), replica.stop()]);
  }
}

/**
 * The tests of a database whose primary dies and whose replica takes over. Clients connect to an address that leads to
 * the present primary; in these tests a proxy has that address.
 *
 * @param start - starts a pair; the primary of a synchronous one confirms nothing before its replica has it
 */
export function failoverContract(
  start: (replication: 'synchronous' | 'asynchronous') => Promise<ReplicatedDatabase>,
): void {
  let pair: Pair | undefined;

  async function startPair(replication: 'synchronous' | 'asynchronous'): Promise<Pair> {
    const database = await start(replication);
    return (pair = new Pair(database, await startTcpProxy(database.primary)));
  }

  afterEach(async () => {
    await pair?.stop();
    pair = undefined;
  });

  test('a synchronous replica keeps every lock, refuses held locks to other callers, and gives larger tokens', async () => {
    const both = await startPair('synchronous');
    const [alice, bob] = [await both.newProcess(), await both.newProcess()];
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

  test('a primary with a synchronous replica grants no lock before the replica has stored it', async () => {
    const both = await startPair('synchronous');
    const [alice, bob] = [await both.newProcess(1_000), await both.newProcess()];
    both.database.link.blackHole();
    await expect(alice.acquire(['unknown'], once)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await both.failOver();
    const lock = await bob.acquire(['unknown'], patiently);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await Promise.all([alice.close(), bob.close()]);
  });

  test('no two contenders hold a lock together, and tokens grow, while a synchronous replica takes over', async () => {
    const both = await startPair('synchronous');
    // The ttl outlasts the fail-over: a client that holds a lock when the primary dies still holds it after the fail-over.
    const [hold, ttl] = [1_200, 4_000];
    const { overlaps, tokenFaults, late, acquisitions } = await contendOver(
      () => both.newProcess(),
      async () => {
        await new Promise((resolve) => setTimeout(resolve, DURATION / 3));
        await both.failOver();
      },
      { hold, ttl },
    );
    expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
    expect(acquisitions).toBeGreaterThan(LEAST);
    expect((await both.database.orphans?.(ttl)) ?? []).toEqual([]);
  });

  // No client can prevent this second grant; the page of the database warns of it. The test also shows that the tests
  // above can fail.
  test('an asynchronous replica that lacks a grant allows two holders for a time', async () => {
    const both = await startPair('asynchronous');
    const [alice, bob] = [await both.newProcess(), await both.newProcess()];
    both.database.link.blackHole();
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
}
