import { Inject, Injectable } from '@nestjs/common';
import type { Pool } from 'pg';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import { POOL } from '../database/database.module.js';

/** Counters of one instance. */
export interface InstanceActivity {
  readonly name: string;
  /** Number of runs of the dispatcher. */
  readonly dispatches: number;
  /** Number of times that the dispatcher did not run because another instance held the lock. */
  readonly skips: number;
  /** Number of jobs whose task could not be taken, such as duplicates. */
  readonly refused: number;
  /** Start of the current run of the dispatcher. The value stays if the instance dies during the run. */
  readonly dispatchingSince: Date | null;
}

/** Counts the actions of instances. The counts are in the database, because they must survive the instance. */
@Injectable()
export class ActivityRepository {
  private readonly name: string;

  constructor(
    @Inject(POOL) private readonly pool: Pool,
    @Inject(ENVIRONMENT) { INSTANCE }: Environment,
  ) {
    this.name = INSTANCE;
  }

  async dispatchStarted(): Promise<void> {
    await this.pool.query(
      `insert into instances as i (name, dispatches, dispatching_since) values ($1, 1, now())
       on conflict (name) do update set dispatches = i.dispatches + 1, dispatching_since = now()`,
      [this.name],
    );
  }

  async dispatchEnded(): Promise<void> {
    await this.pool.query('update instances set dispatching_since = null where name = $1', [this.name]);
  }

  async dispatchSkipped(): Promise<void> {
    await this.pool.query(
      `insert into instances as i (name, skips) values ($1, 1)
       on conflict (name) do update set skips = i.skips + 1`,
      [this.name],
    );
  }

  async jobRefused(): Promise<void> {
    await this.pool.query(
      `insert into instances as i (name, refused) values ($1, 1)
       on conflict (name) do update set refused = i.refused + 1`,
      [this.name],
    );
  }

  async list(): Promise<InstanceActivity[]> {
    const { rows } = await this.pool.query<InstanceActivity>(
      `select name, dispatches, skips, refused, dispatching_since as "dispatchingSince"
       from instances order by name`,
    );
    return rows;
  }
}
