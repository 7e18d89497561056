/**
 * - `pending`: stored, waits for the dispatcher
 * - `enqueued`: marked by the dispatcher, in the queue or about to be
 * - `processing`: taken by a consumer
 * - `failed`: waits for the dispatcher to try again
 * - `done`, `dead`: final; a dead task has failed too often
 */
export type TaskStatus = 'pending' | 'enqueued' | 'processing' | 'failed' | 'dead' | 'done';

/** Work of a task. The sample's work is a wait: a time for each item. */
export interface TaskPayload {
  readonly items: number;
  readonly msPerItem: number;
  /** Number of attempts that fail before one succeeds. */
  readonly failures: number | 'always';
}

export interface Task {
  readonly id: string;
  readonly name: string;
  readonly payload: TaskPayload;
  readonly status: TaskStatus;
  /** Number of times that a consumer has taken it. */
  readonly attempts: number;
  /** The error of the last attempt; `null` without an error. */
  readonly error: string | null;
  /** The instance that took it last. */
  readonly processedBy: string | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}
