/** Where the waiters of one process for the same keys stand, one after the other, in the queue of a node. */
export interface WaiterId {
  readonly keys: readonly string[];
  /** Random, in hexadecimal digits: the same for all places of one process. */
  readonly process: string;
  /** Tells the places of a process apart. */
  readonly number: number;
  /** Readable name of the process. */
  readonly owner: string;
}
