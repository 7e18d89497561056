import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import type { TaskJob } from '../queue/task-queue.js';

/** The steps of a dispatch, for whoever wants to observe or slow it down: another provider in place of this one. */
@Injectable()
export class DispatchSteps {
  constructor(@Inject(ENVIRONMENT) private readonly environment: Environment) {}

  /** So many tasks were read. */
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
