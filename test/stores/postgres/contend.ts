import { setTimeout as delay } from 'node:timers/promises';
import type { AcquireOptions, Redlock } from '../../../lib/redlock/redlock.js';
import { type FaultEvent, type FaultEventBody, machineTime } from '../../faults/events.js';
import { judge, type Verdict } from '../../faults/judge.js';
import type { PostgresServer } from '../../support/postgres-server.js';

const LONG = process.env['FAULTS'] === 'long';
/** Milliseconds for which they contend; `npm run test:faults` gives them longer. */
export const DURATION = LONG ? 30_000 : 5_500;
/** Milliseconds in which an acquisition that may wait for one second settles (J6); a busy machine is late by itself. */
const BUDGET = LONG ? 1_500 : 5_000;

const OPTIONS: Omit<AcquireOptions, 'ttl'> = {
  renew: true,
  signals: [],
  retry: { timeout: 1_000, attempts: Infinity, delay: 20, jitter: 20 },
};

/**
 * Four processes, each with two who take one of two locks again and again while something is done; what the judge says of it.
 *
 * @param hold - for how long at most each holds it, in milliseconds
 */
export async function contend(
  open: () => Promise<Redlock>,
  meanwhile: () => Promise<unknown>,
  { hold = 60, ttl = 1_000 } = {},
): Promise<Verdict> {
  const events: FaultEvent[] = [];
  const processes = await Promise.all(
    ['a', 'b', 'c', 'd'].map(async (client) => ({ client, redlock: await open() })),
  );
  const end = performance.now() + DURATION;
  let attempts = 0;
  const work = async (client: string, redlock: Redlock, key: string): Promise<void> => {
    while (performance.now() < end) {
      const attempt = ++attempts;
      const tell = (event: FaultEventBody): void =>
        void events.push({ ...event, client, at: machineTime() } as FaultEvent);
      tell({ event: 'invoke', attempt, keys: [key], mode: 'exclusive', budget: BUDGET });
      try {
        const lock = await redlock.acquire([key], { ...OPTIONS, ttl });
        const validUntil = (): number => machineTime() + lock.remaining();
        tell({ event: 'return', attempt, token: lock.fencingToken, validUntil: validUntil() });
        lock.signal.addEventListener('abort', () => tell({ event: 'lost', attempt }));
        for (const over = performance.now() + Math.random() * hold; performance.now() < over;) {
          await delay(5);
          if (lock.isHeld()) tell({ event: 'renew', attempt, validUntil: validUntil() });
        }
        tell({ event: 'release', attempt, budget: 1_000 });
        await lock.release();
        tell({ event: 'released', attempt });
      } catch (error) {
        const { code = '', message } = error as { code?: string; message: string };
        tell({ event: 'refuse', attempt, code, message });
        await delay(5);
      }
    }
  };
  const working = processes.flatMap(({ client, redlock }) =>
    ['x', 'y'].map((key) => work(client, redlock, key)),
  );
  await Promise.all([...working, meanwhile()]);
  await Promise.all(processes.map(({ redlock }) => redlock.close()));
  return judge(events, undefined, machineTime());
}

/** The locks that the server still has as held when everybody has gone for longer than their ttl. */
export async function orphansOn(server: PostgresServer, ttl = 1_000): Promise<string[]> {
  await delay(ttl);
  const looker = await server.client();
  const { rows } = await looker.query(
    `select key from redlock.locks where state <> 'free' and ends > clock_timestamp()`,
  );
  return (rows as { key: string }[]).map(({ key }) => key);
}
