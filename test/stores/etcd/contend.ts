import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { type FaultEvent, type FaultEventBody, machineTime } from '../../faults/events.js';
import { judge, type Verdict } from '../../faults/judge.js';

/** With fewer acquisitions nothing was tested: both keys may be held for long, and the servers stand still for half of the time. */
export const LEAST = 5;

/** The shortest ttl that etcd keeps, in milliseconds. */
const TTL = 2_000;

/**
 * Processes, each with one caller for each of two locks, who take them again and again while something is done to the servers.
 *
 * @param duration - milliseconds
 */
export async function contend(
  processes: readonly Redlock[],
  duration: number,
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
      tell({ event: 'invoke', attempt, keys: [key], mode: 'exclusive', budget: 2_000 });
      try {
        const lock = await redlock.acquire([key], {
          ttl: TTL,
          // Both kinds of what a lock ends with.
          renew: attempt % 3 !== 0,
          signals: [],
          retry: { timeout: 1_500, attempts: Infinity, delay: 20, jitter: 20 },
        });
        const validUntil = (): number => machineTime() + lock.remaining();
        tell({ event: 'return', attempt, token: lock.fencingToken, validUntil: validUntil() });
        lock.signal.addEventListener('abort', () => tell({ event: 'lost', attempt }));
        const holds = Math.random() < 0.05 ? 2 * TTL : Math.random() * 60;
        for (const over = performance.now() + holds; performance.now() < over && lock.isHeld();) {
          await delay(5);
          if (lock.isHeld()) tell({ event: 'renew', attempt, validUntil: validUntil() });
        }
        tell({ event: 'release', attempt, budget: 1_500 });
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
