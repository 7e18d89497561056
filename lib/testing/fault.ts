/** Kind of request to a node. */
export const REQUESTS = ['acquire', 'extend', 'release'] as const;
export type NodeRequest = (typeof REQUESTS)[number];

/** Outcome of requests in place of a prompt reply. */
export interface Fault {
  readonly concerns: (request: NodeRequest, keys: readonly string[]) => boolean;
  /** The node refuses, and does nothing. */
  readonly error?: Error;
  /** The reply takes so many milliseconds. */
  readonly delay?: number;
}
