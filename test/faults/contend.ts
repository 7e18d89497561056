import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../lib/redlock/redlock.js';
import { type FaultEvent, type FaultEventBody, machineTime } from './events.js';
import { judge, type Verdict } from './judge.js';

export interface Contention {
  /** For how long they contend, in milliseconds. */
  readonly duration: number;
  readonly ttl: number;
  /** How long an acquisition waits, in milliseconds. */
  readonly timeout: number;
  /** Milliseconds in which each settles (J6). */
  readonly budget: { readonly acquire: number; readonly release: number };
  /** For how long one holds it, in milliseconds; random, up to 60 by default. */
  readonly hold?: () => number;
  /** Whether a lock is renewed; each by default. */
  readonly renews?: (attempt: number) => boolean;
}

/**
 * Processes, each with one caller for each of two locks, who take them again and again while something is done to the servers;
 * what the judge says of it.
 */
export async function contend(
  processes: readonly Redlock[],
  { duration, ttl, timeout, budget, hold = () => Math.random() * 60, renews = () => true }: Contention,
  meanwhile: () => Promise<unknown>,
): Promise<Verdict> {
  const events: FaultEvent[] = [];
  const end = performance.now() + duration;
  let attempts = 0;
  const work = async (client: string, redlock: Redlock, key: string): Promise<void> => {
    while (performance.now() < end) {
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
    ['x', 'y'].map((key) => work(`process ${index}`, redlock, key)),
  );
  await Promise.all([...working, meanwhile()]);
  return judge(events, undefined, machineTime());
}
