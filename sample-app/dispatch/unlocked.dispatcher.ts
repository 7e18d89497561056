import { Injectable } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { DispatchJob } from './dispatch.job.js';

/** What most services have today. Every instance runs it, all in the same second, and they read the same rows. */
@Injectable()
export class UnlockedDispatcher {
  constructor(private readonly job: DispatchJob) {}

  @Cron(CronExpression.EVERY_SECOND)
  async dispatchPendingTasks(): Promise<void> {
    await this.job.run();
  }
}
