import type { Rule } from './judge/rules.js';
import type { Library } from './node/load.js';
import type { FaultEvent } from './plans/faults.js';
import type { Plan } from './plans/plan.js';
import { Simulation } from './simulation.js';

/** The number of seeds of the network that a changed plan may try: each change shifts the moments of messages. */
const TRIES = 3;

/** `true` if the world breaks the promise. */
export function breaks(plan: Plan, rule: Rule, library: Library): boolean {
  const { findings } = new Simulation(plan, library, { stopAt: [rule] }).run();
  return findings.some((finding) => finding.rule === rule);
}

/** Reduces a plan to the faults and settings that the finding needs. */
export function shrink(plan: Plan, rule: Rule, library: Library, until: () => boolean): Plan {
  let best = plan;
  const attempt = (change: Partial<Plan>): boolean => {
    for (let number = 0; number < TRIES && !until(); number++) {
      const [seed = ''] = best.seed.split('/');
      const tried = { ...best, ...change, seed: number === 0 ? best.seed : `${seed}/${number}` };
      if (!breaks(tried, rule, library)) continue;
      best = tried;
      return true;
    }
    return false;
  };
  dropEvents(
    () => best.events,
    (events) => attempt({ events }),
  );
  for (const change of simplerWorlds(best)) attempt(change);
  dropEvents(
    () => best.events,
    (events) => attempt({ events }),
  );
  for (const at of best.events.keys()) {
    for (const simpler of simplerEvents(best.events[at] as FaultEvent))
      attempt({ events: best.events.map((event, index) => (index === at ? simpler : event)) });
  }
  const last = Math.max(5_000, ...best.events.map(({ at }) => at + 10_000));
  if (last < best.duration) attempt({ duration: last });
  return best;
}

/** Leaves out halves of the events, then quarters, and so on to single events. */
function dropEvents(events: () => readonly FaultEvent[], attempt: (left: FaultEvent[]) => boolean): void {
  for (let size = events().length; size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < events().length;) {
      const left = [...events().slice(0, at), ...events().slice(at + size)];
      if (!attempt(left)) at += size;
    }
  }
}

function simplerWorlds({ mix, ttls, longTtl }: Plan): Partial<Plan>[] {
  const operations = Object.keys(mix) as (keyof Plan['mix'])[];
  return [
    { leader: false, ticks: false },
    { handsOver: false },
    { thread: false },
    { drift: 0 },
    { nodeTimeout: undefined },
    { passedIn: false },
    { longTtl: 0 },
    ...operations.map((operation) => ({ mix: { [operation]: 1 } })),
    ...(ttls.length > 1 ? ttls.map((ttl) => ({ ttls: [ttl] })) : []),
    ...(longTtl > 0 ? [{ workers: 0 }] : []),
    ...[1, 2].map((workers) => ({ workers })),
    ...[1, 2].map((processes) => ({ processes })),
    { lists: undefined },
    { nodes: 1, lists: undefined },
    { nodes: 3, lists: undefined },
  ];
}

function* simplerEvents(event: FaultEvent): Iterable<FaultEvent> {
  const rounded = (value: unknown): unknown =>
    typeof value === 'number' && Math.abs(value) > 100 ? Math.round(value / 100) * 100 : value;
  yield Object.fromEntries(
    Object.entries(event).map(([name, value]) => [name, rounded(value)]),
  ) as FaultEvent;
  if ('duration' in event) yield { ...event, duration: Math.ceil(event.duration / 2) } as FaultEvent;
}
