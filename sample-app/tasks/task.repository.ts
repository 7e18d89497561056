import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import type { SqlClient, TokenHolder } from 'nestjs-redlock/fencing';
import type { Pool } from 'pg';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import { POOL } from '../database/database.module.js';
import { register } from '../database/schema.js';
import type { NewTask } from './create-tasks.schema.js';
import type { Task, TaskPayload, TaskStatus } from './task.js';

/** A task that is ready for a dispatch. */
export interface DispatchableTask {
  readonly id: string;
  /** Number of earlier dispatches. */
  readonly dispatches: number;
}

/** A task that a consumer has taken for this attempt. */
export interface TakenTask {
  readonly id: string;
  readonly payload: TaskPayload;
  readonly attempt: number;
}

/** All reads and writes of tasks in the database. */
@Injectable()
export class TaskRepository {
  constructor(
    @Inject(POOL) private readonly pool: Pool,
    @Inject(ENVIRONMENT) private readonly environment: Environment,
  ) {}

  /** Stores all tasks or none: one statement is one transaction. */
  async insert(tasks: readonly NewTask[]): Promise<string[]> {
    const rows = tasks.map(({ name, ...payload }) => ({ id: randomUUID(), name, payload }));
    await this.pool.query(
      `insert into tasks (id, name, payload)
       select id, name, payload from jsonb_to_recordset($1) as row (id uuid, name text, payload jsonb)`,
      [JSON.stringify(rows)],
    );
    return rows.map(({ id }) => id);
  }

  async find(id: string): Promise<Task | undefined> {
    const { rows } = await this.pool.query<Task>(
      `select id, name, payload, status, attempts, error, processed_by as "processedBy",
              created_at as "createdAt", updated_at as "updatedAt"
       from tasks where id = $1`,
      [id],
    );
    return rows[0];
  }

  async countByStatus(): Promise<Record<TaskStatus, number>> {
    const { rows } = await this.pool.query<{ status: TaskStatus; count: number }>(
      'select status, count(*)::int as count from tasks group by status',
    );
    const counts = { pending: 0, enqueued: 0, processing: 0, failed: 0, dead: 0, done: 0 };
    for (const { status, count } of rows) counts[status] = count;
    return counts;
  }

  /**
   * Reads the oldest tasks that wait for the dispatcher. The read is fenced, too: no earlier holder can mark these
   * tasks afterwards. Without a lock another instance can read the same rows.
   */
  async readDispatchable(limit: number, lock?: TokenHolder): Promise<DispatchableTask[]> {
    return this.fenced(lock, async (client) => {
      const { rows } = await client.query<DispatchableTask>(
        `select id, dispatches from tasks where status in ('pending', 'failed') order by created_at limit $1`,
        [limit],
      );
      return rows;
    });
  }

  /**
   * Marks tasks as enqueued.
   *
   * @throws StaleTokenError if a later holder of the lock has already read or marked tasks
   */
  async markEnqueued(ids: readonly string[], lock?: TokenHolder): Promise<void> {
    await this.fenced(lock, (client) =>
      client.query(
        `update tasks set status = 'enqueued', dispatches = dispatches + 1, updated_at = now() where id = any($1)`,
        [ids],
      ),
    );
  }

  /** Takes a task for processing; returns `undefined` if the task is not enqueued (any more). */
  async markProcessing(id: string): Promise<TakenTask | undefined> {
    const { rows } = await this.pool.query<TakenTask>(
      `update tasks
       set status = 'processing', attempts = attempts + 1, processed_by = $2, error = null, updated_at = now()
       where id = $1 and status = 'enqueued'
       returning id, payload, attempts as attempt`,
      [id, this.environment.INSTANCE],
    );
    return rows[0];
  }

  /** Shows that the attempt continues, so that the sweep leaves the task alone. */
  async heartbeat({ id, attempt }: TakenTask): Promise<void> {
    await this.pool.query(
      `update tasks set updated_at = now() where id = $1 and attempts = $2 and status = 'processing'`,
      [id, attempt],
    );
  }

  // Both updates check the number of the attempt: an abandoned attempt must not overwrite the result of a later
  // attempt.

  async markDone({ id, attempt }: TakenTask): Promise<void> {
    await this.pool.query(
      `update tasks set status = 'done', updated_at = now()
       where id = $1 and attempts = $2 and status = 'processing'`,
      [id, attempt],
    );
  }

  async markFailed({ id, attempt }: TakenTask, error: string): Promise<void> {
    await this.pool.query(
      `update tasks
       set status = case when attempts < $4 then 'failed' else 'dead' end, error = $3, updated_at = now()
       where id = $1 and attempts = $2 and status = 'processing'`,
      [id, attempt, error, this.environment.MAX_ATTEMPTS],
    );
  }

  // The statements of the sweep need no token: their conditions make a late execution harmless.

  /**
   * Makes enqueued tasks that no consumer has taken pending again. Either the dispatcher died between mark and push, or a
   * consumer died after it had received the job and before it took the task.
   *
   * @returns the number of these tasks
   */
  async returnNeverTaken(): Promise<number> {
    const { rowCount } = await this.pool.query(
      `update tasks set status = 'pending', updated_at = now()
       where status = 'enqueued' and updated_at < now() - $1 * interval '1 millisecond'`,
      [this.environment.ENQUEUED_TIMEOUT],
    );
    return rowCount ?? 0;
  }

  /** Fails the attempts of dead consumers. The results of these attempts are unknown, so they count against the limit. */
  async failAbandoned(): Promise<number> {
    const { rowCount } = await this.pool.query(
      `update tasks
       set status = case when attempts < $2 then 'failed' else 'dead' end,
           error = processed_by || ' died while processing', updated_at = now()
       where status = 'processing' and updated_at < now() - $1 * interval '1 millisecond'`,
      [this.environment.PROCESSING_TIMEOUT, this.environment.MAX_ATTEMPTS],
    );
    return rowCount ?? 0;
  }

  private fenced<T>(lock: TokenHolder | undefined, task: (client: SqlClient) => Promise<T>): Promise<T> {
    return lock ? register.transaction(this.pool, lock, task) : task(this.pool);
  }
}
