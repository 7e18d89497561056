import type { Plan } from '../plans/plan.js';

/** The documented time limit for the answer of one node, in milliseconds. */
export function nodeLimit(ttl: number, { nodeTimeout }: Plan): number {
  return Math.min(nodeTimeout ?? Math.max(ttl * 0.05, 50), ttl * 0.2);
}
