/** Kind of request to a node. */
export const REQUESTS = ['acquire', 'extend', 'release'] as const;
export type NodeRequest = (typeof REQUESTS)[number];

/** A fault of a node for certain requests. */
export interface Fault {
  readonly concerns: (request: NodeRequest, keys: readonly string[]) => boolean;
  /** The error with which the node answers. The node then does nothing. */
  readonly error?: Error;
  /** Milliseconds until the reply arrives. */
  readonly delay?: number;
}
