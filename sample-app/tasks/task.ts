/**
 * - `pending`: stored, waits for the dispatcher
 * - `enqueued`: marked by the dispatcher, in the queue or about to be
 * - `processing`: taken by a consumer
 * - `failed`: waits for the dispatcher to try again
 * - `done`, `dead`: final; a dead task has failed too often
 */
export type TaskStatus = 'pending' | 'enqueued' | 'processing' | 'failed' | 'dead' | 'done';

/** Describes the work of a task. In this sample, the work only waits `msPerItem` milliseconds for each item. */
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
  /** Number of times that a consumer has taken the task. */
  readonly attempts: number;
  /** Error of the last attempt. */
  readonly error: string | null;
  /** Instance that took the task last. */
  readonly processedBy: string | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}
