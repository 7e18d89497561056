/** Settings and functions that all nodes of one module use. */
export interface StoreContext {
  readonly keyPrefix: string;
  /** `true` if the restart guard is on: restarted nodes do not vote for some time (S12). */
  readonly guarded: boolean;
  /** `true` if the application accepts that a restart forgets locks, so the store does not warn about it. */
  readonly mayForget?: boolean;
  /** `true` if there are several nodes, which must agree on fencing tokens. */
  readonly several: boolean;
  /** The names of the nodes, all different. */
  readonly names: Set<string>;
  /** The name of the node behind each run id, to detect a server that is listed twice (S17). */
  readonly runIds: Map<string, string>;
  /** Logs a warning about a weak setup or an unusable node. Repeated calls log the same message only once. */
  readonly warnOnce: (message: string) => void;
  /** Reports a lost connection or a failed attempt to connect. Called for every attempt. */
  readonly nodeLost?: (node: string) => void;
  /** Reports that a node accepts requests. */
  readonly nodeReady?: (node: string) => void;
}
