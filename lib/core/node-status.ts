/** How fit a node is to vote, as it says itself. */
export interface NodeCheck {
  /**
   * `'voting'`; `'guarded'` while it is kept from voting because it started or lost its data a short while ago
   * (`restartGuard`); `'unfit'` when it must not be used for locks, such as a replica, or refuses what a lock writes, such
   * as one whose memory is used up.
   */
  readonly state: 'voting' | 'guarded' | 'unfit';
  /** Milliseconds until it votes again; only with `'guarded'`. */
  readonly votesIn?: number;
  /** Why it does not vote. */
  readonly reason?: string;
  /** What makes its locks weaker than they could be, such as eviction, and what to change. */
  readonly warnings: readonly string[];
}

/** How fit a node is to vote. */
export interface NodeStatus extends Omit<NodeCheck, 'state'> {
  /** The node's address, without credentials; each node of a module has another. */
  readonly node: string;
  /** As {@link NodeCheck.state}; or `'unreachable'` when it did not answer in time. */
  readonly state: NodeCheck['state'] | 'unreachable';
}

/** How fit the nodes are to grant locks. */
export interface NodesStatus {
  /** Whether enough nodes vote, so that locks can be had. */
  readonly available: boolean;
  /** How many nodes must agree. */
  readonly quorum: number;
  readonly nodes: readonly NodeStatus[];
}
