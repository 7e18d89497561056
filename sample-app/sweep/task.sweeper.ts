import { Injectable, Logger } from '@nestjs/common';
import { Interval } from '@nestjs/schedule';
import { WithLock } from 'nestjs-redlock';
import { TaskRepository } from '../tasks/task.repository.js';

/** Returns the tasks of dead instances to the dispatcher. */
@Injectable()
export class TaskSweeper {
  private readonly logger = new Logger(TaskSweeper.name);

  constructor(private readonly tasks: TaskRepository) {}

  @Interval(2_000)
  @WithLock('batch:task:sweep', { onBusy: 'skip' })
  async sweep(): Promise<void> {
    const neverTaken = await this.tasks.returnNeverTaken();
    if (neverTaken > 0) this.logger.warn(`${neverTaken} tasks were enqueued and never taken`);
    const abandoned = await this.tasks.failAbandoned();
    if (abandoned > 0) this.logger.warn(`${abandoned} tasks were abandoned while being processed`);
  }
}
