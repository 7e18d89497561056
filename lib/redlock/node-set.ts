/**
 * A set of nodes, with one bit for the index of each node, so that a set needs no allocation. A set has room for 31
 * nodes; a module rejects more nodes.
 */
export type NodeSet = number;

export const MOST_NODES = 31;

export function nodeSet(node: number): NodeSet {
  return 1 << node;
}

/** The first `count` nodes. */
export function firstNodes(count: number): NodeSet {
  return 2 ** count - 1;
}

export function hasNode(nodes: NodeSet, node: number): boolean {
  return (nodes & (1 << node)) !== 0;
}

export function sizeOf(nodes: NodeSet): number {
  let size = 0;
  for (let left = nodes; left !== 0; left &= left - 1) size++;
  return size;
}
