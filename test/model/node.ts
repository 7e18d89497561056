import { quorumOf } from '../../lib/redlock/quorum.js';

// What one node does with the messages of the fencing protocol, as pure functions. `node.test.ts` shows that the Lua
// scripts and the node in memory do the same, so what is proved with these is proved of those.

// Jest's sandbox makes globals slow.
const { max } = Math;

/** One key on one node. */
export interface NodeState {
  /** The claim that holds the lock; `undefined` when it is free, expired or released. */
  readonly owner: number | undefined;
  readonly counter: number;
}

/** The node after a message, and the counter that it answered with; no counter means that it refused. */
export interface NodeStep {
  readonly node: NodeState;
  readonly counter: number | undefined;
}

/** @param clock - what the counter must have reached at least, as it follows the node's clock */
export function acquireOn(node: NodeState, claim: number, clock: number): NodeStep {
  if (node.owner === claim) return { node, counter: node.counter };
  if (node.owner !== undefined) return { node, counter: undefined };
  const counter = max(node.counter + 1, clock);
  return { node: { owner: claim, counter }, counter };
}

/** How the token is written back to nodes whose counter is behind. Only the first is right. */
export interface RaiseRule {
  /** Whether a node lets itself be raised. */
  readonly accepts: (node: NodeState, claim: number, token: number) => boolean;
  /** How many nodes must have been raised. */
  readonly needed: (nodeCount: number) => number;
}

export const RIGHT_RULE: RaiseRule = {
  accepts: ({ owner, counter }, claim, token) => owner === claim && counter <= token,
  needed: quorumOf,
};

/** Rules that look right. Each gives two holders the same token, or a later one a smaller token. */
export const WRONG_RULES: Readonly<Record<string, RaiseRule>> = {
  'the token is not written back': { ...RIGHT_RULE, needed: () => 0 },
  'the token is written back blindly': { ...RIGHT_RULE, accepts: () => true },
  'the token is written back wherever the claim holds the lock, whatever the counter': {
    ...RIGHT_RULE,
    accepts: ({ owner }, claim) => owner === claim,
  },
  'the token is written back wherever the counter is behind, whoever holds the lock': {
    ...RIGHT_RULE,
    accepts: ({ counter }, _claim, token) => counter <= token,
  },
  'one node that was raised is enough': { ...RIGHT_RULE, needed: () => 1 },
};

export function raiseOn(node: NodeState, claim: number, token: number, rule = RIGHT_RULE): NodeStep {
  if (!rule.accepts(node, claim, token)) return { node, counter: undefined };
  const counter = max(node.counter, token);
  return { node: { ...node, counter }, counter };
}
