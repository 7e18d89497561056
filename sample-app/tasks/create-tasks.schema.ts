import { z } from 'zod';

/** Largest number of tasks in one request. */
export const MOST_TASKS = 500;

export const taskSchema = z.strictObject({
  name: z
    .string()
    .trim()
    .min(1)
    .max(200)
    // PostgreSQL cannot store the NUL character in a text, and a name needs no other control characters either.
    .regex(/^\P{Cc}*$/u, 'must not contain control characters'),
  items: z.int().min(1).max(10_000),
  msPerItem: z.int().min(0).max(60_000),
  failures: z
    .union([z.int().min(0).max(100), z.literal('always')], "must be 0 to 100, or 'always'")
    .default(0),
});

/** The body of `POST /tasks`. */
export const createTasksSchema = z.strictObject({
  tasks: z.array(taskSchema).min(1).max(MOST_TASKS, `at most ${MOST_TASKS} tasks in one request`),
});

export type CreateTasks = z.output<typeof createTasksSchema>;
export type NewTask = z.output<typeof taskSchema>;
