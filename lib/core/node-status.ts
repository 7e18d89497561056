/** A node's own report of its fitness to vote. */
export interface NodeCheck {
  /**
   * `'voting'`; `'guarded'` while it is kept from voting because it started or lost its data a short while ago
   * (`restartGuard`). `'unfit'` when it must not be used for locks, such as a replica, or refuses the writes of a lock,
   * such as one whose memory is full.
   */
  readonly state: 'voting' | 'guarded' | 'unfit';
  /** Milliseconds until it votes again; only with `'guarded'`. */
  readonly votesIn?: number;
  /** The reason why it does not vote. */
  readonly reason?: string;
  /** Settings that make its locks weaker, such as eviction, and how to change them. */
  readonly warnings: readonly string[];
}

/** The fitness of a node to vote. */
export interface NodeStatus extends Omit<NodeCheck, 'state'> {
  /** The node's address, without credentials; unique among the nodes of a module. */
  readonly node: string;
  /** As {@link NodeCheck.state}; or `'unreachable'` when it did not answer in time. */
  readonly state: NodeCheck['state'] | 'unreachable';
}

/** The fitness of the nodes to grant locks. */
export interface NodesStatus {
  /** `true` if enough nodes vote to grant locks. */
  readonly available: boolean;
  /** The number of nodes that must agree. */
  readonly quorum: number;
  readonly nodes: readonly NodeStatus[];
}
