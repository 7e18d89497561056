import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import type { TaskJob } from '../queue/task-queue.js';

/** The steps of a dispatch. Provide another object in its place to observe a dispatch, or to slow it down. */
@Injectable()
export class DispatchSteps {
  constructor(@Inject(ENVIRONMENT) private readonly environment: Environment) {}

  /** Called with the number of tasks that were read. */
  read(_tasks: number): void {}

  /** Stands for what a real dispatcher does with the tasks that it has read: group, price, reserve. */
  async work(): Promise<void> {
    const { DISPATCH_WORK } = this.environment;
    if (DISPATCH_WORK > 0) await sleep(DISPATCH_WORK);
  }

  /** The tasks are about to be marked: all checks are done. */
  writing(): void {}

  /** These jobs are in the queue. */
  pushed(_jobs: readonly TaskJob[]): void {}
}
