/** The waiters of one process for the same keys, who stand as one in the queue of a node. */
export interface WaiterId {
  readonly keys: readonly string[];
  /** Random, 16 hexadecimal digits: the same for all waiters of one process. */
  readonly process: string;
  /** Tells the waiters of a process apart. */
  readonly number: number;
  /** Readable name of the process. */
  readonly owner: string;
}
