import { Inject, Injectable } from '@nestjs/common';
import type { Pool } from 'pg';
import { ENVIRONMENT, type Environment } from '../../sample-app/config/environment.js';
import { POOL } from '../../sample-app/database/database.module.js';
import { DispatchJob } from '../../sample-app/dispatch/dispatch.job.js';
import { DispatchSteps } from '../../sample-app/dispatch/dispatch-steps.js';
import { type DispatchableTask, TaskRepository } from '../../sample-app/tasks/task.repository.js';

/** Returns the statement for the table of {@link DatabaseDispatch.oncePerDispatch}. */
export function createPushesTable(schema: string): string {
  return `
    create table "${schema}".pushes (
      task_id  uuid not null,
      dispatch integer not null,
      primary key (task_id, dispatch)
    )`;
}

/** Dispatches without a lock: the database decides which instance gets a task. */
@Injectable()
export class DatabaseDispatch {
  constructor(
    private readonly tasks: TaskRepository,
    private readonly job: DispatchJob,
    private readonly steps: DispatchSteps,
    @Inject(POOL) private readonly pool: Pool,
    @Inject(ENVIRONMENT) private readonly environment: Environment,
  ) {}

  /** Skips rows that another instance has read: PostgreSQL locks them until the transaction of that instance ends. */
  async skippingLocked(): Promise<void> {
    const tasks = await this.take();
    if (tasks.length > 0) await this.job.push(tasks);
  }

  /** Lets several instances do the work. A unique constraint accepts the result of one of them. */
  async oncePerDispatch(): Promise<void> {
    const tasks = await this.tasks.readDispatchable(this.environment.DISPATCH_BATCH);
    this.steps.read(tasks.length);
    if (tasks.length === 0) return;
    await this.steps.work();
    const first = await this.mark(tasks);
    if (first.length > 0) await this.job.push(first);
  }

  /** Reads tasks, works, and marks the tasks as enqueued. Their rows stay locked until the end. */
  private async take(): Promise<DispatchableTask[]> {
    const client = await this.pool.connect();
    let failure: Error | undefined;
    try {
      await client.query('begin');
      const { rows } = await client.query<DispatchableTask>(
        `select id, dispatches from tasks where status in ('pending', 'failed')
         order by created_at limit $1 for update skip locked`,
        [this.environment.DISPATCH_BATCH],
      );
      this.steps.read(rows.length);
      if (rows.length > 0) await this.steps.work();
      await client.query(
        `update tasks set status = 'enqueued', dispatches = dispatches + 1, updated_at = now() where id = any($1)`,
        [rows.map(({ id }) => id)],
      );
      await client.query('commit');
      return rows;
    } catch (error) {
      failure = error as Error;
      throw error;
    } finally {
      // `release` with an error closes the connection, which also ends the transaction.
      client.release(failure);
    }
  }

  /**
   * Records the dispatches that are not recorded yet, and marks their tasks as enqueued.
   *
   * @returns the tasks that were marked
   */
  private async mark(tasks: readonly DispatchableTask[]): Promise<DispatchableTask[]> {
    // One statement does both. If a process died between two statements, a dispatch would be recorded but its task not
    // marked, and no process could dispatch the task again.
    const { rows } = await this.pool.query<DispatchableTask>(
      `with claimed as (
         insert into pushes (task_id, dispatch)
         select id, dispatches + 1 from jsonb_to_recordset($1) as task (id uuid, dispatches integer)
         on conflict do nothing
         returning task_id
       )
       update tasks set status = 'enqueued', dispatches = dispatches + 1, updated_at = now()
       from claimed where id = task_id
       returning id, dispatches - 1 as dispatches`,
      [JSON.stringify(tasks)],
    );
    return rows;
  }
}
