import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { contend, type Contention } from '../../faults/contend.js';
import type { Verdict } from '../../faults/judge.js';
import type { PostgresServer } from '../../support/postgres-server.js';

const LONG = process.env['FAULTS'] === 'long';
/** Milliseconds for which processes contend; longer in `npm run test:faults`. */
export const DURATION = LONG ? 30_000 : 5_500;

/** Smallest number of acquisitions for a meaningful test. It is low in short runs: a busy machine restarts a server slowly. */
export const LEAST = LONG ? 20 : 3;

/**
 * Milliseconds in which a call must settle (rule J6 of docs/fault-tests.md). The short runs get more time, because other
 * tests on the same machine delay them.
 */
const BUDGET = LONG ? { acquire: 1_500, release: 1_000 } : { acquire: 10_000, release: 10_000 };

export const TERMS: Contention = { duration: DURATION, ttl: 1_000, timeout: 1_000, budget: BUDGET };

/**
 * Lets four processes contend while `meanwhile` runs.
 *
 * @param hold - longest time that a process holds a lock, in milliseconds
 */
export async function contendOver(
  open: () => Promise<Redlock>,
  meanwhile: () => Promise<unknown>,
  { hold, ttl }: { readonly hold: number; readonly ttl: number },
): Promise<Verdict> {
  const processes = await Promise.all(Array.from({ length: 4 }, open));
  const terms = { ...TERMS, ttl, hold: () => Math.random() * hold };
  const verdict = await contend(processes, terms, meanwhile);
  await Promise.all(processes.map((redlock) => redlock.close()));
  return verdict;
}

/**
 * Waits until the ttl has passed, and resolves to the keys of the locks that the server still stores as held. The caller
 * has closed all processes.
 */
export async function orphansOn(server: PostgresServer, ttl = 1_000): Promise<string[]> {
  await delay(ttl);
  const looker = await server.client();
  const { rows } = await looker.query(
    `select key from redlock.locks where state <> 'free' and ends > clock_timestamp()`,
  );
  return (rows as { key: string }[]).map(({ key }) => key);
}
