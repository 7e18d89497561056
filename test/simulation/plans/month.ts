import type { Random } from '../world/random.js';
import { FAULTS, type FaultEvent, type FaultKind, UNNOTICED_MS } from './faults.js';
import type { Plan } from './plan.js';

/** Faults of one node, or of one path to a node. The first ones are the most frequent ones of a usual month. */
const OF_A_NODE: readonly FaultKind[] = [
  ...(['crash', 'crash', 'cut', 'cut', 'block', 'hang', 'slow', 'delay', 'refuse'] as const),
  ...(['forget', 'flush', 'promote', 'replicaOf', 'scriptFlush'] as const),
];

/** Faults of one process. */
const OF_A_PROCESS: readonly FaultKind[] = ['kill', 'restart', 'pause', 'suspend', 'step'];

/** The part of the ttl for which a node with lost data and its locks are away: the guard, and a renewal (S12, S26). */
const GUARD_AND_RENEWAL = 1.5;

/** Milliseconds after a fault until the library has connected again and has checked the node. */
const RECOVERY_MS = 8_000;

/**
 * A month of single failures: for a simulated hour or two, one node, one path to a node or one process after the other
 * fails, each when the one before has healed. A lock that the first process holds is held all the time.
 */
export function monthOf(seed: number, random: Random): Plan {
  const nodes = random.pick([3, 3, 3, 4, 5]);
  const processes = random.whole(2, 3);
  const longTtl = random.pick([3_000, 10_000, 10_000, 30_000]);
  const ttls = random.pick([[1_000], [1_000, 10_000], [10_000]]);
  const duration = random.pick([1_800_000, 3_600_000, 7_200_000]);
  const scale = { nodes, processes, mayLose: true };
  const longestTtl = Math.max(10_000, longTtl, ...ttls);
  const events: FaultEvent[] = [];
  for (let at = 5_000; at < duration - 3 * longestTtl;) {
    const kind = random.pick(random.chance(0.8) ? OF_A_NODE : OF_A_PROCESS);
    const fault = { kind, at: Math.round(at), ...FAULTS[kind](random, scale) };
    const one = {
      ...fault,
      ...('node' in fault
        ? { node: fault.node ?? random.whole(0, nodes - 1) }
        : // The first process holds a lock all the time.
          { process: random.whole(1, processes - 1) }),
    } as FaultEvent;
    // The lock that is held is extended again and again. Other moments may come only when the next thing fails.
    const isOfAll = !('process' in one) || one.process === undefined;
    events.push(random.chance(0.3) && isOfAll ? { ...one, on: 'extend' } : one);
    at += lastsOf(one) + GUARD_AND_RENEWAL * longestTtl + RECOVERY_MS + random.scaled(1_000, 60_000);
  }
  return {
    seed: String(seed),
    ...{ nodes, processes, longTtl, ttls, duration, events },
    guard: true,
    workers: 1,
    pace: random.pick([20_000, 90_000]),
    leastPace: 5_000,
    permits: [2],
    latency: 1.5,
    holds: 1_000,
    passedIn: false,
    nodeTimeout: undefined,
    shutdownTimeout: 3_000,
    drift: random.chance(0.5) ? 0.004 : 0,
    mix: { acquire: 4, tryAcquire: 1, shared: 2, permits: 2, severalKeys: 1, minHold: 1, withLock: 1 },
    leader: random.chance(0.5),
    terms: 3_600_000,
    ticks: random.chance(0.1),
  };
}

/** Milliseconds for which a fault lasts at most. */
function lastsOf(event: FaultEvent): number {
  if (event.kind === 'forget') return UNNOTICED_MS;
  const {
    duration = 0,
    down = 0,
    late = 0,
    again = 0,
  } = event as Readonly<Record<string, unknown>> as Partial<Record<string, number>>;
  return duration + down + late + again;
}
