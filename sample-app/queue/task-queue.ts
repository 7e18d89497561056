/** Name of the BullMQ queue. */
export const TASK_QUEUE = 'tasks';

/** What a job in the queue says. The task itself stays in the database. */
export interface TaskJob {
  readonly taskId: string;
  /** Counts the dispatches of the task, from 1. Two jobs with the same number are one too many. */
  readonly dispatch: number;
}
