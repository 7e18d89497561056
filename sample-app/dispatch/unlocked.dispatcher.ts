import { Injectable } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { DispatchJob } from './dispatch.job.js';

/** The usual solution without a lock. All instances dispatch in the same second, and read the same rows. */
@Injectable()
export class UnlockedDispatcher {
  constructor(private readonly job: DispatchJob) {}

  @Cron(CronExpression.EVERY_SECOND)
  async dispatchPendingTasks(): Promise<void> {
    await this.job.run();
  }
}
