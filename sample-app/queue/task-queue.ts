/** Name of the BullMQ queue. */
export const TASK_QUEUE = 'tasks';

/** Data of a job in the queue. The task itself stays in the database. */
export interface TaskJob {
  readonly taskId: string;
  /** Number of this dispatch of the task, from 1. Two jobs of one task with the same number are duplicates. */
  readonly dispatch: number;
}
