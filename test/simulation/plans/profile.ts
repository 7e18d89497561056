import { Random } from '../world/random.js';
import { FAULTS, type FaultEvent, type FaultKind, MOMENTS, type Scale } from './faults.js';
import { furtherFaults } from './further.js';
import type { Mix, Plan } from './plan.js';
import { monthOf } from './month.js';
import { orphansOf } from './orphans.js';

/** The kinds of faults that are mixed. Those of `further.ts` are added to some worlds. */
const KINDS = (Object.keys(FAULTS) as FaultKind[]).filter(
  (kind) => kind !== 'stepNode' && kind !== 'replicaOf' && kind !== 'stall',
);

/** Kinds that only a world with the restart guard survives. */
const NEEDS_GUARD: ReadonlySet<FaultKind> = new Set(['flush', 'promote']);

/** The plan of a seed. `only` limits the kinds of faults, to look for one defect. The search, the tests in CI and the controls all use this one profile of faults. */
export function planOf(seed: number, only?: readonly FaultKind[]): Plan {
  const months = new Random(`long/${seed}`);
  if (!only && months.chance(0.04)) return monthOf(seed, months);
  // A stream of its own, so that other worlds stay as they were.
  if (!only && new Random(`with-orphans/${seed}`).chance(0.1)) return orphansOf(seed);
  const random = new Random(`plan/${seed}`);
  const nodes = random.pick([1, 3, 3, 3, 3, 4, 5]);
  const guard = nodes >= 3 ? true : random.chance(0.3);
  const duration = random.pick([10_000, 20_000, 40_000]);
  const processes = random.whole(2, 4);
  const longTtl = random.chance(0.4) ? random.pick([3_000, 10_000, 30_000]) : 0;
  const ttls = random.pick([[1_000], [1_000, 3_000], [3_000, 10_000], [10_000], [30_000], [10_000, 30_000]]);
  const lapses = ttls.includes(1_000) && random.chance(0.6);
  const scale = { nodes, processes, mayLose: guard };
  // Numbers of its own, so that the worlds of other seeds stay as they were.
  const hands = new Random(`hands/${seed}`);
  const handsOver = hands.chance(0.12);
  const faults = eventsOf(seed, random, scale, duration, Math.max(longTtl, ...ttls, 10_000), only);
  const mixed = handsOver && !only ? faults.map((event) => atExchange(event, hands)) : faults;
  const threads = new Random(`with-thread/${seed}`);
  const thread = !only && threads.chance(0.12);
  const events = only
    ? mixed
    : [
        ...mixed,
        ...furtherFaults(seed, scale, duration),
        ...(thread ? stalls(threads, scale, duration) : []),
        ...(thread ? lateHealings(new Random(`late-healing/${seed}`), scale, duration) : []),
      ].toSorted((a, b) => a.at - b.at);
  return {
    seed: String(seed),
    ...{ nodes, processes, guard, longTtl, ttls, events },
    duration: Math.max(duration, (events.at(-1)?.at ?? 0) + 5_000),
    workers: random.whole(1, 4),
    pace: random.pick([50, 300, 1_000, 3_000]),
    permits: random.pick([[2], [3], [2, 2, 3, 4], [5], [8]]),
    latency: random.pick([1.5, 1.5, 15]),
    holds: random.pick([200, 1_000, 3_000]),
    ...(random.chance(0.3) && { lists: listsOf(random, nodes) }),
    keys: random.pick([1, 2, 3]),
    lapsing: lapses ? 0.7 : 0.15,
    passedIn: random.chance(0.2),
    nodeTimeout: random.pick([undefined, undefined, 200, 1_500]),
    shutdownTimeout: random.pick([500, 3_000]),
    drift: random.chance(0.5) ? 0.004 : 0,
    mix: mixOf(random),
    leader: random.chance(0.2),
    ticks: random.chance(0.2),
    ...(handsOver && { handsOver }),
    // A thread has no part in a lock that is released before its first renewal.
    ...(thread && { thread, lapsing: 0.15, holds: threads.pick([1_000, 5_000, 15_000]) }),
  };
}

/** Lets some faults wait for the moment at which a lock goes to another process, and has connections cut at it. */
function atExchange(event: FaultEvent, random: Random): FaultEvent {
  if (random.chance(0.3)) {
    const bytes = random.pick(['arrive', 'arrive', 'late', 'lost'] as const);
    const late = Math.round(random.scaled(10, 1_500));
    return { kind: 'cut', at: event.at, process: undefined, node: undefined, bytes, late, on: 'exchange' };
  }
  return event.on && random.chance(0.6) ? { ...event, on: 'exchange' } : event;
}

/**
 * Event loops are blocked, some of them while a thread extends a lock or stores it on a further node. Before that a node may
 * refuse locks, so that it lacks them.
 */
function stalls(random: Random, scale: Scale, duration: number): FaultEvent[] {
  return Array.from({ length: random.whole(0, Math.round(duration / 2_000)) }, (): FaultEvent[] => {
    const at = Math.round(random.between(1_500, duration));
    const fault = { kind: 'stall' as const, at, ...FAULTS.stall(random, scale) };
    if (random.chance(0.5)) return [fault];
    const waits: FaultEvent = { ...fault, on: random.pick(['extend', 'extend', 'heal'] as const) };
    if (random.chance(0.5)) return [waits];
    const refusal = { ...FAULTS.refuse(random, scale), how: 'oom' as const };
    return [{ kind: 'refuse', at: Math.max(0, at - refusal.duration), ...refusal }, waits];
  }).flat();
}

/**
 * A thread hangs while it stores a lock on a node that did not have it, and that asks for the text of the script. The process
 * may have taken the lock back or released it when the thread reads that.
 */
function lateHealings(random: Random, scale: Scale, duration: number): FaultEvent[] {
  return Array.from({ length: random.whole(0, 4) }, (): FaultEvent[] => {
    const at = Math.round(random.between(1_500, duration));
    const refusal = { ...FAULTS.refuse(random, scale), how: 'oom' as const };
    const stall = { ...FAULTS.stall(random, scale), ofThread: true };
    const hangs = Math.round(random.scaled(1_000, 10_000));
    return [
      { kind: 'refuse', at: Math.max(0, at - refusal.duration), ...refusal },
      { kind: 'stall', at, ...stall, duration: hangs, on: 'heal' },
      { kind: 'scriptFlush', at, node: refusal.node, on: 'heal' },
    ];
  }).flat();
}

/** The lists of a deployment that changes the order of the nodes, adds a node or removes one. */
function listsOf(random: Random, nodes: number): number[][] {
  const all = Array.from({ length: nodes }, (_, index) => index);
  const other = nodes > 3 && random.chance(0.7) ? all.slice(1) : [...all.slice(1), 0];
  return random.chance(0.5) ? [all, other] : [other, all];
}

function mixOf(random: Random): Mix {
  const all: Mix = {
    acquire: 35,
    tryAcquire: 10,
    severalKeys: 10,
    shared: 10,
    permits: 10,
    tryPermits: 3,
    minHold: 5,
    maxHold: 5,
    aborted: 5,
    attempts: 3,
    inspect: 1,
    declared: 3,
    list: 1,
    forceRelease: 1,
  };
  // Nested calls make every promise of the world slower, so not all worlds have them.
  if (random.chance(0.3)) return { ...all, withLock: 15 };
  if (random.chance(0.4))
    return random.pick([
      { permits: 1 },
      { permits: 1, tryPermits: 2 },
      { permits: 1, tryPermits: 2 },
      { shared: 1 },
      { acquire: 1 },
      { severalKeys: 1, acquire: 1 },
    ]);
  return all;
}

function eventsOf(
  seed: number,
  random: Random,
  scale: Scale,
  duration: number,
  guard: number,
  only?: readonly FaultKind[],
): FaultEvent[] {
  if (!only && random.chance(0.05)) return [];
  if (!only && scale.mayLose && random.chance(0.08)) return rollingRestarts(scale.nodes, guard);
  const late = new Random(`late/${seed}`);
  if (!only && late.chance(0.08)) return lateRequests(late, scale, duration);
  const possible = KINDS.filter((kind) => scale.mayLose || !NEEDS_GUARD.has(kind));
  const kinds =
    only ??
    (random.chance(0.4)
      ? [random.pick(possible), random.pick(possible)]
      : possible.filter(() => random.chance(0.3)));
  if (kinds.length === 0) return [];
  const moments = new Random(`moments/${seed}`);
  const events = Array.from({ length: random.whole(1, Math.max(2, Math.round(duration / 1_500))) }, () => {
    const kind = random.pick(kinds);
    const at = Math.round(random.between(1_500, duration));
    const fault = { kind, at, ...FAULTS[kind](random, scale) } as FaultEvent;
    return moments.chance(0.6) ? { ...fault, on: moments.pick(MOMENTS) } : fault;
  });
  return events.toSorted((a, b) => a.at - b.at);
}

/**
 * Connections are cut while they store locks, and the bytes arrive a little later. Between the cuts nodes refuse locks, so
 * that they are stored there afterwards.
 */
function lateRequests(random: Random, scale: Scale, duration: number): FaultEvent[] {
  const events = Array.from({ length: random.whole(3, 10) }, (): FaultEvent => {
    const at = Math.round(random.between(1_500, duration));
    if (random.chance(0.3)) return { kind: 'refuse', at, ...FAULTS.refuse(random, scale), how: 'oom' };
    const late = Math.round(random.scaled(30, 1_500));
    const on = random.pick(['acquire', 'heal'] as const);
    return { kind: 'cut', at, ...FAULTS.cut(random, scale), bytes: 'late', late, on };
  });
  return events.toSorted((a, b) => a.at - b.at);
}

/** One node after the other restarts without its data; the next one follows when the guard of the node has passed. */
function rollingRestarts(nodes: number, guard: number): FaultEvent[] {
  return Array.from({ length: nodes }, (_, node) => ({
    kind: 'crash' as const,
    at: 3_000 + node * (guard + 8_000),
    ...{ node, down: 500, lost: -1 },
  }));
}
