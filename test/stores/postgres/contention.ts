import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { contend } from '../../faults/contend.js';
import type { Verdict } from '../../faults/judge.js';
import type { PostgresServer } from '../../support/postgres-server.js';

const LONG = process.env['FAULTS'] === 'long';
/** Milliseconds for which they contend; `npm run test:faults` gives them longer. */
export const DURATION = LONG ? 30_000 : 5_500;
/** A busy machine is late by itself. */
const BUDGET = { acquire: LONG ? 1_500 : 5_000, release: 1_000 };

/**
 * Four processes contend while something is done.
 *
 * @param hold - for how long at most each holds a lock, in milliseconds
 */
export async function contendOver(
  open: () => Promise<Redlock>,
  meanwhile: () => Promise<unknown>,
  { hold = 60, ttl = 1_000 } = {},
): Promise<Verdict> {
  const processes = await Promise.all(Array.from({ length: 4 }, open));
  const terms = { duration: DURATION, ttl, timeout: 1_000, budget: BUDGET, hold: () => Math.random() * hold };
  const verdict = await contend(processes, terms, meanwhile);
  await Promise.all(processes.map((redlock) => redlock.close()));
  return verdict;
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
