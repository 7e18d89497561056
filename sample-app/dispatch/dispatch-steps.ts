import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import type { TaskJob } from '../queue/task-queue.js';

/** The steps of a dispatch. A provider that replaces this class can observe a dispatch, or slow it down. */
@Injectable()
export class DispatchSteps {
  constructor(@Inject(ENVIRONMENT) private readonly environment: Environment) {}

  /** Called after `tasks` tasks were read. */
  read(_tasks: number): void {}

  /** Waits in place of the work of a real dispatcher: group, price, reserve. */
  async work(): Promise<void> {
    const { DISPATCH_WORK } = this.environment;
    if (DISPATCH_WORK > 0) await sleep(DISPATCH_WORK);
  }

  /** Called before the tasks are marked, after all checks. */
  writing(): void {}

  /** Called when these jobs are in the queue. */
  pushed(_jobs: readonly TaskJob[]): void {}
}
