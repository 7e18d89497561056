import type { Plan } from '../plans/plan.js';

/** The documented time limit for the answer of one node, in milliseconds. */
export function nodeLimit(ttl: number, { nodeTimeout }: Plan): number {
  return Math.min(nodeTimeout ?? Math.max(ttl * 0.05, 50), ttl * 0.2);
}

/** The time limit of one attempt: for the answers of the nodes, which may be idle, and of two further rounds. */
export function attemptLimit(ttl: number, plan: Plan): number {
  const first = Math.min(plan.nodeTimeout ?? Math.max(ttl * 0.05, 1_000), ttl * 0.2);
  return first + 2 * nodeLimit(ttl, plan);
}
