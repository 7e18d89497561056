import { Random } from '../world/random.js';
import { FAULTS, type FaultEvent } from './faults.js';
import type { Plan } from './plan.js';

/** Milliseconds from the start within which processes end. Afterwards nothing disturbs the others. */
const KILLED_WITHIN_MS = 8_000;

/**
 * Processes end while they send a lock to the first node, which then keeps it alone for the rest of the world. The other
 * processes get the lock from a quorum of the other nodes, and wait for each other.
 */
export function orphansOf(seed: number): Plan {
  const random = new Random(`orphans/${seed}`);
  const latency = random.chance(0.7) ? 15 : 1.5;
  const nodes = random.pick([3, 3, 4, 5]);
  const processes = 4;
  const scale = { nodes, processes, mayLose: true };
  const events = Array.from({ length: random.whole(1, 4) }, (): FaultEvent => {
    const at = Math.round(random.between(1_500, KILLED_WITHIN_MS));
    return { kind: random.pick(['kill', 'restart']), at, ...FAULTS.kill(random, scale), on: 'acquire' };
  });
  return {
    seed: String(seed),
    ...{ nodes, processes, longTtl: 0, ttls: [30_000], duration: 40_000 },
    events: events.toSorted((a, b) => a.at - b.at),
    guard: true,
    workers: 2,
    // A process that asks often would get a lock before a waiter that nobody tells.
    pace: 3_000,
    latency,
    holds: random.pick([1_000, 3_000]),
    lapsing: 0,
    passedIn: false,
    nodeTimeout: undefined,
    shutdownTimeout: 500,
    drift: 0,
    mix: { acquire: 1 },
    leader: false,
    ticks: false,
  };
}
