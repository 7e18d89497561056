import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../lib/redlock/redlock.js';
import { type FaultEvent, type FaultEventBody, machineTime } from './events.js';
import { startHeartbeat } from './heartbeat.js';
import { judge, type Verdict } from './judge.js';

/** A contention goes on until it has seen this number of acquisitions, because a busy machine restarts a server slowly. */
const ENOUGH = 25;

/** Milliseconds by which a contention may take longer for that reason. */
const PATIENCE_MS = 60_000;

export interface Contention {
  /** Duration of the contention, in milliseconds. */
  readonly duration: number;
  readonly ttl: number;
  /** Longest wait of an acquisition, in milliseconds. */
  readonly timeout: number;
  /** Milliseconds within which each call must settle (J6). */
  readonly budget: { readonly acquire: number; readonly release: number };
  /** Returns the duration of a hold, in milliseconds; by default random, up to 60. */
  readonly hold?: () => number;
  /** Returns true if the attempt renews its lock; by default every attempt does. */
  readonly renews?: (attempt: number) => boolean;
}

/**
 * Runs two callers in each process, one for each of two keys that all processes share. Each caller acquires the lock of
 * its key again and again. Meanwhile the callback harms the servers. Resolves to the judge's verdict.
 */
export async function contend(
  processes: readonly Redlock[],
  { duration, ttl, timeout, budget, hold = () => Math.random() * 60, renews = () => true }: Contention,
  meanwhile: () => Promise<unknown>,
): Promise<Verdict> {
  const events: FaultEvent[] = [];
  const nameOf = (index: number): string => `process ${index}`;
  // One real process runs all of these simulated processes, so they stall at the same time.
  const heartbeat = startHeartbeat((stall, at) => {
    for (const index of processes.keys())
      events.push({ event: 'stall', duration: stall, client: nameOf(index), at });
  });
  const end = performance.now() + duration;
  let attempts = 0;
  let acquisitions = 0;
  const isOver = (): boolean => performance.now() > (acquisitions < ENOUGH ? end + PATIENCE_MS : end);
  const work = async (client: string, redlock: Redlock, key: string): Promise<void> => {
    while (!isOver()) {
      const attempt = ++attempts;
      const tell = (event: FaultEventBody): void =>
        void events.push({ ...event, client, at: machineTime() } as FaultEvent);
      tell({ event: 'invoke', attempt, keys: [key], mode: 'exclusive', budget: budget.acquire });
      try {
        const lock = await redlock.acquire([key], {
          ttl,
          renew: renews(attempt),
          signals: [],
          retry: { timeout, attempts: Infinity, delay: 20, jitter: 20 },
        });
        acquisitions++;
        const validUntil = (): number => machineTime() + lock.remaining();
        tell({ event: 'return', attempt, token: lock.fencingToken, validUntil: validUntil() });
        lock.signal.addEventListener('abort', () => tell({ event: 'lost', attempt }));
        for (const over = performance.now() + hold(); performance.now() < over && lock.isHeld();) {
          await delay(5);
          if (lock.isHeld()) tell({ event: 'renew', attempt, validUntil: validUntil() });
        }
        tell({ event: 'release', attempt, budget: budget.release });
        await lock.release();
        tell({ event: 'released', attempt });
      } catch (error) {
        const { code = '', message } = error as { code?: string; message: string };
        tell({ event: 'refuse', attempt, code, message });
        await delay(5);
      }
    }
  };
  const working = processes.flatMap((redlock, index) =>
    ['x', 'y'].map((key) => work(nameOf(index), redlock, key)),
  );
  await Promise.all([...working, meanwhile()]).finally(() => heartbeat.end());
  heartbeat.check();
  return judge(events, undefined, machineTime());
}
