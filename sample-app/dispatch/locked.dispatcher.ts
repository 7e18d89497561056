import { Injectable } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { WithLock } from 'nestjs-redlock';
import { ActivityRepository } from '../stats/activity.repository.js';
import { DispatchJob } from './dispatch.job.js';

/** The timer of each instance fires. One instance at a time dispatches, and the others skip. */
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
   * Dispatches under the lock. Its ttl is the default of the module, `LOCK_TTL`.
   *
   * @returns the number of tasks that this run moved; `undefined` if another instance holds the lock
   */
  @WithLock('batch:task:list', { onBusy: 'skip' })
  async dispatchPendingTasks(): Promise<number | undefined> {
    return this.job.run();
  }
}
