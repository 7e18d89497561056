import { beforeAll, beforeEach, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { LockLostError } from '../../lib/core/errors.js';
import { Lease } from '../../lib/core/lease.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { LockDirectory, LockStore } from '../../lib/core/ports.js';
import type { StoreTerms } from '../../lib/core/store-factory.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { acquireOn, releaseOn } from '../support/ask-store.js';
import { redlockOver } from '../support/core.js';
import { PATIENT } from '../support/patience.js';
import { newTerms } from '../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { extendUntilConfirmed, renewed } from './lock-lifetime.js';

export const TTL = 60_000;

/** Milliseconds; far below the ttl, so that a test cannot pass because a lock expired instead of being released. */
export const RELEASED_WITHIN = TTL / 2;

export const once: AcquireTerms = { ttl: TTL, renew: true, signals: [], retry: NO_RETRY };
export const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

let nextKey = 0;
export const freshKey = (): string => `key:${nextKey++}`;
export const leaseOn = (key: string): Lease => new Lease([key], 'me', TTL);

/** An address at which a store can connect to a server: that of the server, or of a proxy. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface FaultyServer extends Address {
  pause(): unknown;
  resume(): void;
  /** Kills the server and starts it again. */
  restart(): Promise<unknown>;
  stop(): Promise<unknown>;
}

type FaultyStore = LockStore & LockDirectory;

/** The servers and stores of one kind. */
export interface FaultBench<Server extends FaultyServer> {
  /** Starts the server that the tests of a file share, or one for a single test. */
  readonly start: () => Promise<Server>;
  /** Opens a store, which is closed after the tests. */
  readonly open: (to: Address, terms: StoreTerms) => Promise<FaultyStore>;
  readonly isHeld: (key: string, on: Server) => Promise<boolean>;
}

/** The tests of faults that several stores share, and the server of the other tests, with a proxy before it. */
export class FaultContract<Server extends FaultyServer> {
  server!: Server;
  proxy!: TcpProxy;

  constructor(
    private readonly name: string,
    private readonly bench: FaultBench<Server>,
  ) {
    beforeAll(async () => {
      this.server = await bench.start();
      this.proxy = await startTcpProxy(this.server);
    });
    beforeEach(() => this.proxy.heal());
  }

  isHeld(key: string): Promise<boolean> {
    return this.bench.isHeld(key, this.server);
  }

  async newProcess(to: Address = this.proxy, nodeTimeout: number = PATIENT.nodeTimeout): Promise<Redlock> {
    return redlockOver([await this.bench.open(to, newTerms())], { nodeTimeout });
  }

  losesReply(): void {
    test('a store rejects an acquire whose reply was lost, and releases its lock over the next connection', async () => {
      const key = freshKey();
      const redlock = await this.newProcess(this.proxy, 3_000);
      // The first call may need more round trips, such as one that prepares the statement.
      await (await redlock.acquire([key], once)).release();
      this.proxy.dropReplies();
      const acquiring = redlock.acquire([key], once);
      acquiring.catch(() => undefined);
      await until(() => this.isHeld(key));
      await expect(acquiring).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      await this.proxy.heal();
      await until(async () => !(await this.isHeld(key)), RELEASED_WITHIN);
      await redlock.close();
    });
  }

  renewsAfterCut(): void {
    test('a store loses no lock when the connection is cut repeatedly: the next connection renews the lock', async () => {
      const redlock = await this.newProcess();
      const lock = await redlock.acquire([freshKey()], { ...waiting, ttl: 9_000 });
      for (let time = 0; time < 2; time++) {
        this.proxy.cut();
        await renewed([lock]);
      }
      expect(lock.isHeld()).toBe(true);
      await lock.release();
      await redlock.close();
    });
  }

  releasesLate(): void {
    test('a late release of a lapsed lease has no effect on the next holder (S7)', async () => {
      const store = await this.bench.open(this.proxy, newTerms());
      const direct = await this.bench.open(this.server, newTerms());
      const key = freshKey();
      const [late, next] = [new Lease([key], 'late', 200), leaseOn(key)];
      await acquireOn(store, late);
      this.proxy.holdRequests();
      const releasing = releaseOn(store, late);
      await until(async () => (await acquireOn(direct, next)).granted);
      await this.proxy.heal();
      await releasing;
      expect(await direct.read([key])).toMatchObject([{ holders: [{ id: next.id }] }]);
    });
  }

  restarts(): void {
    test(`${this.name} keeps every lock when it is killed and restarted, and continues with larger tokens`, async () => {
      const mine = await this.bench.start();
      const terms = newTerms();
      const store = await this.bench.open(mine, terms);
      const redlock = redlockOver([store], PATIENT);
      const [kept, freed] = [freshKey(), freshKey()];
      // On a busy machine the restart of a server can take more than a minute.
      const lock = await redlock.acquire([kept], { ...once, ttl: 10 * TTL });
      const before = await redlock.acquire([freed], once);
      await before.release();
      const restart = { isOver: false };
      const restarting = mine.restart().finally(() => (restart.isOver = true));
      // A store that asks nothing while its server is away may not learn of that: etcd has no connection of its own.
      while (!restart.isOver) {
        await redlock.acquire([kept], once).catch(() => undefined);
        await delay(5);
      }
      await restarting;
      // The store can learn of the loss after the restart.
      await until(() => terms.events.includes('lost') && store.available);
      await expect(redlock.acquire([kept], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
      expect(terms.events.slice(0, 2)).toEqual(['ready', 'lost']);
      const after = await redlock.acquire([freed], waiting);
      expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
      await extendUntilConfirmed(lock);
      await Promise.all([lock.release(), after.release()]);
      await redlock.close();
      await mine.stop();
    });
  }

  hangs(): void {
    test(`${this.name} stores no lock for an acquire that came while the server hung, and held locks end in time`, async () => {
      const mine = await this.bench.start();
      const redlock = await this.newProcess(mine, 300);
      const [key, late] = [freshKey(), freshKey()];
      const ttl = 1_500;
      // A node has little time to answer for so short a ttl, so that one attempt may not be enough.
      const lock = await redlock.acquire([key], { ...waiting, ttl });
      const acquired = performance.now();
      const lost = new Promise<number>((resolve) => {
        lock.signal.addEventListener('abort', () => resolve(performance.now()));
      });
      mine.pause();
      // If the server stored this lock late, the lock would last for longer than the test waits.
      await expect(redlock.acquire([late], once)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      const told = await lost;
      expect(lock.loss).toBeInstanceOf(LockLostError);
      expect(lock.isHeld()).toBe(false);
      // The loss is reported by the end of the validity; the rest is the delay of a busy machine.
      expect(told - acquired).toBeLessThan(10 * ttl);
      await delay(ttl);
      mine.resume();
      for (const each of [key, late])
        await until(async () => !(await this.bench.isHeld(each, mine)), RELEASED_WITHIN);
      const next = await redlock.acquire([key], waiting);
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      await next.release();
      await redlock.close();
      await mine.stop();
    });
  }
}
