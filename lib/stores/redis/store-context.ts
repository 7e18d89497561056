/** Shared by the nodes of one module. */
export interface StoreContext {
  readonly keyPrefix: string;
  /** `true` if nodes that restarted are kept from voting (S12). */
  readonly guarded: boolean;
  /** `true` if a restart may forget locks without a warning: the application accepts it. */
  readonly mayForget?: boolean;
  /** `true` if there are several nodes, which must agree on fencing tokens. */
  readonly several: boolean;
  /** The names of the nodes, all different. */
  readonly names: Set<string>;
  /** The name of the node behind each run id, to notice a server that is listed twice (S17). */
  readonly runIds: Map<string, string>;
  /** Logs a warning about a weak setup or an unusable node. Logs the same message once. */
  readonly warnOnce: (message: string) => void;
  /** Reports a lost connection or a failed attempt to connect; called for every attempt. */
  readonly nodeLost?: (node: string) => void;
  /** Reports that a node accepts requests. */
  readonly nodeReady?: (node: string) => void;
}
