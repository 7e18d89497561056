/** What the nodes of one module share. */
export interface StoreContext {
  readonly keyPrefix: string;
  /** Whether nodes that restarted are kept from voting (S12). */
  readonly guarded: boolean;
  /** Whether a restart may forget locks without a warning: the application accepts it. */
  readonly mayForget?: boolean;
  /** Whether there are several nodes, which must agree on fencing tokens. */
  readonly several: boolean;
  /** The names of the nodes, each of which is another. */
  readonly names: Set<string>;
  /** The name of the node behind each run id, to notice a server that is listed twice (S17). */
  readonly runIds: Map<string, string>;
  /** Something is weaker than it could be, or a node cannot be used. Says the same thing once. */
  readonly warnOnce: (message: string) => void;
  /** A connection was lost, or an attempt to connect has failed; told again for every attempt. */
  readonly nodeLost?: (node: string) => void;
  /** A node can be asked. */
  readonly nodeReady?: (node: string) => void;
}
