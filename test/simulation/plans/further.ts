import { Random } from '../world/random.js';
import { FAULTS, type FaultEvent, MOMENTS, type Scale } from './faults.js';

/** The part of the worlds that have such faults. Each kind has a random stream of its own, so other worlds stay as they are. */
const CHANCE = 0.06;

/** Largest difference of a node's clock to what it was, in milliseconds: a fall of 10 s can lower tokens (docs/safety.md). */
const FURTHEST_MS = 4_500;

/** Faults beside the mixed ones: nodes that are replicas for a while, and nodes whose clocks are set. */
export function furtherFaults(seed: number, scale: Scale, duration: number): FaultEvent[] {
  const replicas = new Random(`masters/${seed}`);
  const steps = new Random(`jumps/${seed}`);
  return [
    ...(scale.mayLose && replicas.chance(CHANCE) ? replications(replicas, scale, duration) : []),
    ...(steps.chance(CHANCE) ? clockSteps(steps, scale, duration) : []),
  ];
}

function replications(random: Random, scale: Scale, duration: number): FaultEvent[] {
  return Array.from({ length: random.whole(1, 4) }, (): FaultEvent => {
    const at = Math.round(random.between(1_500, duration));
    const fault = { kind: 'replicaOf' as const, at, ...FAULTS.replicaOf(random, scale) };
    return random.chance(0.5) ? { ...fault, on: random.pick(MOMENTS) } : fault;
  });
}

/** Clocks jump, but none falls so far below a time that it has shown that tokens may be lower. */
function clockSteps(random: Random, { nodes }: Scale, duration: number): FaultEvent[] {
  const ahead = Array.from({ length: nodes }, () => 0);
  const times = Array.from({ length: random.whole(1, 8) }, () => Math.round(random.between(1_500, duration)));
  return times
    .toSorted((a, b) => a - b)
    .map((at): FaultEvent => {
      const node = random.whole(0, nodes - 1);
      const to = Math.round(random.pick([-1, 1]) * random.scaled(20, FURTHEST_MS));
      const by = to - (ahead[node] ?? 0);
      ahead[node] = to;
      return { kind: 'stepNode', at, node, by };
    });
}
