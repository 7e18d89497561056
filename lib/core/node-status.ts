/** A node's own report of its fitness to vote. */
export interface NodeCheck {
  /**
   * The state of the node. `'voting'`: its votes count. `'guarded'`: its votes do not count yet, because the node
   * started or lost its data a short time ago (`restartGuard`). `'unfit'`: the node must not be used for locks (such as
   * a replica), or it refuses the writes of a lock (such as a node whose memory is full).
   */
  readonly state: 'voting' | 'guarded' | 'unfit';
  /** Milliseconds until the votes of the node count again; only with `'guarded'`. */
  readonly votesIn?: number;
  /** The reason why the votes of the node do not count. */
  readonly reason?: string;
  /** Settings of the node that make locks less safe, such as eviction, and how to change the settings. */
  readonly warnings: readonly string[];
}

/** The fitness of a node to vote. */
export interface NodeStatus extends Omit<NodeCheck, 'state'> {
  /** The node's address, without credentials; unique among the nodes of a module. */
  readonly node: string;
  /** One of the values of {@link NodeCheck.state}, or `'unreachable'` when the node did not answer in time. */
  readonly state: NodeCheck['state'] | 'unreachable';
}

/** Reports whether the nodes can grant locks. */
export interface NodesStatus {
  /** `true` if enough nodes vote to grant locks. */
  readonly available: boolean;
  /** The number of nodes that must agree. */
  readonly quorum: number;
  readonly nodes: readonly NodeStatus[];
}
