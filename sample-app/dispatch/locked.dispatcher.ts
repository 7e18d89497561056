import { Injectable } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { WithLock } from 'nestjs-redlock';
import { ActivityRepository } from '../stats/activity.repository.js';
import { DispatchJob } from './dispatch.job.js';

/** Every instance's timer fires; one instance at a time dispatches, the others skip. */
@Injectable()
export class LockedDispatcher {
  constructor(
    private readonly job: DispatchJob,
    private readonly activity: ActivityRepository,
  ) {}

  @Cron(CronExpression.EVERY_SECOND)
  async tick(): Promise<void> {
    const dispatched = await this.dispatchPendingTasks();
    if (dispatched === undefined) await this.activity.dispatchSkipped();
  }

  /**
   * The ttl is the module's default, `LOCK_TTL`.
   *
   * @returns the number of moved tasks; `undefined` when another instance dispatches
   */
  @WithLock('batch:task:list', { onBusy: 'skip' })
  async dispatchPendingTasks(): Promise<number | undefined> {
    return this.job.run();
  }
}
