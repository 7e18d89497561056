import { expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../lib/redlock/redlock.js';
import { contend, type Contention } from '../faults/contend.js';

/** A server of its own for one test, with the contention that suits the store. */
export interface ContendedServer {
  readonly terms: Contention;
  /** Connects one more process. */
  open(): Promise<Redlock>;
  /** Kills the server and starts it again. */
  restart(): Promise<unknown>;
  pause(): Promise<unknown>;
  resume(): void;
  /** Ends connections to the server. */
  cut(): Promise<unknown>;
  /** Makes the server forget all held locks. */
  forget(): Promise<unknown>;
  /** Returns the locks that the server still stores when the ttl has passed. All processes are closed. */
  orphans(): Promise<readonly string[]>;
  stop(): Promise<unknown>;
}

export interface ContentionOptions {
  readonly start: () => Promise<ContendedServer>;
  /** Number of processes. */
  readonly processes: number;
  /** Smallest number of acquisitions for a meaningful test. */
  readonly least: number;
  /** Number of times that the server is killed, or hangs. */
  readonly times: number;
  /** Milliseconds for which the server hangs: longer than the ttl. */
  readonly pause: number;
  /** @defaultValue all */
  readonly faults?: readonly (keyof typeof FAULTS)[];
}

/** Faults of the server. */
const FAULTS = {
  restart: 'is killed and restarted',
  pause: 'hangs for longer than a ttl',
  cut: 'ends connections at random',
} as const;

/** The shortest ttl of a lock on etcd and on ZooKeeper, in milliseconds. */
const TTL = 2_000;

/**
 * Milliseconds in which a call must settle (rule J6 of docs/fault-tests.md). The short runs get more time, because other
 * tests on the same machine delay them.
 */
const BUDGET =
  process.env['FAULTS'] === 'long'
    ? { acquire: 2_000, release: 1_500 }
    : { acquire: 10_000, release: 10_000 };

/**
 * Terms of a contention on etcd or ZooKeeper.
 *
 * @param duration - milliseconds
 */
export function contentionFor(duration: number): Contention {
  return {
    duration,
    ttl: TTL,
    timeout: 1_500,
    budget: BUDGET,
    // One hold of twenty is longer than the ttl: the lock is renewed, or another process takes it over.
    hold: () => (Math.random() < 0.05 ? 2 * TTL : Math.random() * 60),
    // On etcd, locks with renewal share a lease, and each lock without renewal has its own: use both kinds.
    renews: (attempt) => attempt % 3 !== 0,
  };
}

/** Repeats an action for this long, with this pause; both are in milliseconds. */
async function again(duration: number, pause: number, action: () => Promise<unknown>): Promise<void> {
  for (const end = performance.now() + duration; performance.now() < end; await delay(pause)) await action();
}

/** Lets processes contend for locks while their server fails. The judge of the fault tests reads what they saw. */
export function contentionContract(
  name: string,
  { start, processes, least, times, pause, faults = ['restart', 'pause', 'cut'] }: ContentionOptions,
): void {
  const harm: Readonly<Record<keyof typeof FAULTS, (server: ContendedServer) => Promise<unknown>>> = {
    async restart(server) {
      for (let time = 0; time < times; time++) {
        await delay(1_500);
        await server.restart();
      }
    },
    async pause(server) {
      for (let time = 0; time < times; time++) {
        await delay(1_000);
        await server.pause();
        await delay(pause);
        server.resume();
      }
    },
    cut: (server) => again(server.terms.duration - 1_500, 100, () => server.cut()),
  };

  const opened = (server: ContendedServer) =>
    Promise.all(Array.from({ length: processes }, () => server.open()));

  test.each(faults.map((fault) => [FAULTS[fault], fault] as const))(
    `no two contenders hold a lock together, tokens grow, and no orphaned lock is left, when ${name} %s`,
    async (_, fault) => {
      const server = await start();
      const all = await opened(server);
      const verdict = await contend(all, server.terms, () => harm[fault](server));
      await Promise.all(all.map((redlock) => redlock.close()));
      const { overlaps, tokenFaults, late, acquisitions } = verdict;
      expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
      expect(acquisitions).toBeGreaterThan(least);
      expect(await server.orphans()).toEqual([]);
      await server.stop();
    },
  );

  // This test shows that the tests above can fail.
  test(`the judge reports overlaps when ${name} forgets its locks (control)`, async () => {
    const server = await start();
    const all = await opened(server);
    // Each hold is long, so that another process acquires during it even on a busy machine.
    const terms = { ...server.terms, duration: 4_000, hold: () => 500 };
    const { overlaps } = await contend(all, terms, () => again(3_800, 40, () => server.forget()));
    expect(overlaps.length).toBeGreaterThan(0);
    await Promise.all(all.map((redlock) => redlock.close()));
    await server.stop();
  });
}
