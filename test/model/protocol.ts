import { tokenOf } from '../../lib/core/fencing-token.js';
import { quorumOf } from '../../lib/redlock/quorum.js';
import type { Step } from './explore.js';
import { acquireOn, type NodeState, type RaiseRule, raiseOn } from './node.js';

// The fencing-token protocol (SAFETY "Fencing tokens") with no clock at all: every message may arrive at any time, in
// any order, twice, after its sender has given up, or never; every lock may end at any time, by its ttl or by a release.
//
// What need not be modelled, because it leads nowhere that another step does not lead to:
// - The end of a lock. It shows only when another claim is granted, so a claim may be granted where another one
//   holds the lock; and when a raise is refused, see the next point.
// - Refusals and lost messages. The sender counts neither, so they are the same as a message that never arrives.
// - Late replies. A decision changes no node, so taking it before a grant that it does not count comes to the same as
//   taking it after; and a success that is told later must hold against fewer others.

// Jest's sandbox makes globals slow, and these are looked up some million times.
const { max, min } = Math;
const { fromCharCode } = String;

/** A claim, from its first message on. */
export type ClaimState =
  | { readonly phase: 'waiting' }
  | {
      readonly phase: 'asking';
      /** The largest token that had been returned when this claim was invoked. */
      readonly floor: number;
      /** For each node, the counter that it granted; 0 where none is known. */
      readonly granted: readonly number[];
      /** Where the message has been executed. */
      readonly reached: readonly boolean[];
    }
  | {
      readonly phase: 'raising';
      readonly floor: number;
      readonly token: number;
      /** Where a raise is sent. */
      readonly granted: readonly number[];
      readonly reached: readonly boolean[];
      readonly raised: readonly boolean[];
    }
  | {
      readonly phase: 'returned';
      readonly token: number;
      readonly granted: readonly number[];
      readonly reached: readonly boolean[];
    };

/** Everything there is: nodes, claims, and how often the network and the nodes may still misbehave. */
export interface World {
  readonly nodes: readonly NodeState[];
  readonly claims: readonly ClaimState[];
  /** How many acquire messages may still be executed a second time. Raises may be repeated without end. */
  readonly duplicates: number;
  /** How many grants may still find that the clock, and with it the counter, has jumped ahead. */
  readonly jumps: number;
  /** How many nodes may still lose all they know. */
  readonly losses: number;
}

/** What a world starts with. */
export interface Scope {
  readonly counters: readonly number[];
  readonly claims: number;
  readonly duplicates?: number;
  readonly jumps?: number;
  readonly losses?: number;
}

export function worldOf({ counters, claims, duplicates = 0, jumps = 0, losses = 0 }: Scope): World {
  return {
    nodes: counters.map((counter) => ({ owner: undefined, counter })),
    claims: Array.from({ length: claims }, () => ({ phase: 'waiting' })),
    duplicates,
    jumps,
    losses,
  };
}

/** How a node's counter comes back after a loss of data. */
export type Recovery = (world: World) => number;

/** It follows the clock, which by then is ahead of all that was granted. */
export const FROM_CLOCK: Recovery = ({ nodes, claims }) =>
  max(...nodes.map(({ counter }) => counter), ...claims.map((claim) => ('token' in claim ? claim.token : 0)));

/** The steps of the protocol under a rule for raising. */
export function protocol(rule: RaiseRule, recovery: Recovery = FROM_CLOCK): (world: World) => Step<World>[] {
  return (world) => {
    const steps: Step<World>[] = [];
    if (world.claims.every(({ phase }) => phase === 'returned')) return steps;
    for (const [at] of world.nodes.entries()) {
      if (world.losses > 0) steps.push(lose(world, at, recovery));
    }
    for (const [id, claim] of world.claims.entries()) {
      if (claim.phase === 'waiting') {
        steps.push(invoke(world, id));
        continue;
      }
      for (const [at] of world.nodes.entries()) {
        steps.push(...executeAcquire(world, id, at));
        if ('token' in claim && claim.granted[at]! > 0) steps.push(...executeRaise(world, id, at, rule));
      }
      if (claim.phase === 'asking') steps.push(...decide(world, id, rule));
    }
    return steps;
  };
}

function invoke(world: World, id: number): Step<World> {
  const claim: ClaimState = {
    phase: 'asking',
    floor: max(0, ...returned(world).map(({ token }) => token)),
    granted: world.nodes.map(() => 0),
    reached: world.nodes.map(() => false),
  };
  return { event: `claim ${id} is invoked`, state: withClaim(world, id, claim) };
}

function lose(world: World, at: number, recovery: Recovery): Step<World> {
  const node: NodeState = { owner: undefined, counter: recovery(world) };
  return {
    event: `node ${at} loses its data`,
    state: withNode({ ...world, losses: world.losses - 1 }, at, node),
  };
}

function* executeAcquire(world: World, id: number, at: number): Generator<Step<World>> {
  const claim = world.claims[id]!;
  const node = world.nodes[at]!;
  if (claim.phase === 'waiting') return;
  const again = claim.reached[at]!;
  if (again && world.duplicates === 0) return;
  const budget = again ? { ...world, duplicates: world.duplicates - 1 } : world;
  const event = `claim ${id} ${again ? 'again ' : ''}acquires on node ${at}`;
  // The lock that is in the way may have ended, and so may its own, of an execution before.
  for (const before of node.owner === undefined ? [node] : [node, { ...node, owner: undefined }]) {
    for (const jump of world.jumps > 0 ? [0, 1] : [0]) {
      const { node: after, counter } = acquireOn(before, id, jump * (before.counter + 2));
      if (counter === undefined || (jump && after === before)) continue;
      const changed = withNode(jump ? { ...budget, jumps: budget.jumps - 1 } : budget, at, after);
      const reached = claim.reached.with(at, true);
      const unseen: ClaimState = { ...claim, reached };
      if (claim.phase !== 'asking' || again) yield { event, state: withClaim(changed, id, unseen) };
      // Of two executions either reply may be the one that arrives.
      if (claim.phase === 'asking') {
        const seen: ClaimState = { ...claim, reached, granted: claim.granted.with(at, counter) };
        yield { event: `${event}: ${counter}`, state: withClaim(changed, id, seen) };
      }
    }
  }
}

function* decide(world: World, id: number, rule: RaiseRule): Generator<Step<World>> {
  const claim = world.claims[id]!;
  if (claim.phase !== 'asking') return;
  const counters = claim.granted.filter((counter) => counter > 0);
  const quorum = quorumOf(world.nodes.length);
  if (counters.length < quorum) return;
  const { token, agreeing } = tokenOf(counters);
  if (agreeing >= quorum || rule.needed(world.nodes.length) === 0) {
    yield success(world, id, token, claim);
    return;
  }
  const raised = world.nodes.map(() => false);
  yield {
    event: `claim ${id} raises to ${token}`,
    state: withClaim(world, id, { ...claim, phase: 'raising', token, raised }),
  };
}

function* executeRaise(world: World, id: number, at: number, rule: RaiseRule): Generator<Step<World>> {
  const claim = world.claims[id]!;
  if (claim.phase !== 'raising' && claim.phase !== 'returned') return;
  const { node, counter } = raiseOn(world.nodes[at]!, id, claim.token, rule);
  if (counter === undefined) return;
  const event = `claim ${id} raises node ${at} to ${claim.token}`;
  const changed = withNode(world, at, node);
  if (claim.phase === 'returned') {
    yield { event, state: changed };
    return;
  }
  const raised = claim.raised.with(at, true);
  if (raised.filter(Boolean).length >= rule.needed(world.nodes.length)) {
    const step = success(changed, id, claim.token, claim);
    yield { ...step, event: `${event}; ${step.event}` };
    return;
  }
  yield { event, state: withClaim(changed, id, { ...claim, raised }) };
}

type Returned = Extract<ClaimState, { phase: 'returned' }>;

function returned(world: World): Returned[] {
  return world.claims.filter((claim): claim is Returned => claim.phase === 'returned');
}

function success(
  world: World,
  id: number,
  token: number,
  { floor, granted, reached }: Extract<ClaimState, { phase: 'asking' | 'raising' }>,
): Step<World> {
  const twin = returned(world).some((other) => other.token === token);
  const broken = twin
    ? `J2: token ${token} is given twice`
    : token <= floor
      ? `J3: token ${token} is given after ${floor} was returned`
      : undefined;
  const claim: ClaimState = { phase: 'returned', token, granted, reached };
  return { event: `claim ${id} returns with ${token}`, state: withClaim(world, id, claim), broken };
}

function withClaim(world: World, id: number, claim: ClaimState): World {
  return { ...world, claims: world.claims.with(id, claim) };
}

function withNode(world: World, at: number, node: NodeState): World {
  return { ...world, nodes: world.nodes.with(at, node) };
}

/**
 * The same for worlds that differ only in the names of nodes and claims.
 *
 * Packed into few characters, because nearly all the time of an exploration is spent here.
 */
export function keyOf(world: World): string {
  let key: string | undefined;
  for (const order of permutations(world.claims.length)) {
    const columns = world.nodes
      .map((node, at) => columnOf(node, at, world.claims, order))
      .toSorted(ascending);
    let candidate = '';
    for (const id of order) candidate += fromCharCode(summaryOf(world.claims[id]!));
    for (const column of columns) candidate += fromCharCode(column >>> 12, column & 0xfff);
    if (key === undefined || candidate < key) key = candidate;
  }
  return fromCharCode((world.duplicates << 4) | (world.jumps << 2) | world.losses) + key;
}

/** One node, and what each claim knows of it: 6 bits, and 6 for each claim. */
function columnOf(
  node: NodeState,
  at: number,
  claims: readonly ClaimState[],
  order: readonly number[],
): number {
  let column = ((node.owner === undefined ? 3 : order.indexOf(node.owner)) << 4) | small(node.counter);
  for (const id of order) {
    const claim = claims[id]!;
    column <<= 6;
    if (claim.phase === 'waiting') continue;
    // Once the token is chosen, it no longer matters which counter was granted.
    const granted = claim.phase === 'asking' ? claim.granted[at]! : min(1, claim.granted[at]!);
    column |= small(granted) << 2;
    if (claim.reached[at]) column |= 2;
    if (claim.phase === 'raising' && claim.raised[at]) column |= 1;
  }
  return column;
}

const PHASES: readonly ClaimState['phase'][] = ['waiting', 'asking', 'raising', 'returned'];

function summaryOf(claim: ClaimState): number {
  const floor = 'floor' in claim ? small(claim.floor) : 0;
  return (PHASES.indexOf(claim.phase) << 8) | (floor << 4) | ('token' in claim ? small(claim.token) : 0);
}

function small(value: number): number {
  if (value > 15) throw new RangeError('the scope is too large for the key');
  return value;
}

function ascending(a: number, b: number): number {
  return a - b;
}

const orders = new Map<number, readonly (readonly number[])[]>();

function permutations(count: number): readonly (readonly number[])[] {
  let known = orders.get(count);
  if (!known) {
    known = count === 0 ? [[]] : permutations(count - 1).flatMap((rest) => insertions(rest, count - 1));
    orders.set(count, known);
  }
  return known;
}

function insertions(rest: readonly number[], value: number): number[][] {
  return Array.from({ length: rest.length + 1 }, (_, at) => rest.toSpliced(at, 0, value));
}
