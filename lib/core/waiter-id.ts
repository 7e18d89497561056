import type { LockMode } from './lock-mode.js';

/** The waiters of one process for the same keys in the same mode. They share one entry in the queue of a node. */
export interface WaiterId {
  readonly keys: readonly string[];
  readonly mode: LockMode;
  /** Random number of the process, 16 hexadecimal digits: the same for all its waiters. */
  readonly process: string;
  /** Number that distinguishes the waiters of one process. */
  readonly number: number;
  /** Readable name of the process. */
  readonly owner: string;
}
