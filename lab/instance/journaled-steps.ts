import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { DispatchSteps } from '../../sample-app/dispatch/dispatch-steps.js';
import type { TaskJob } from '../../sample-app/queue/task-queue.js';
import { InstanceSettings } from './instance-settings.js';
import { Journal } from './journal.js';

/** Tells the lab of each step of a dispatch, and works for as long as the lab says. */
@Injectable()
export class JournaledSteps implements Pick<DispatchSteps, keyof DispatchSteps> {
  constructor(
    private readonly journal: Journal,
    private readonly settings: InstanceSettings,
  ) {}

  read(tasks: number): void {
    this.journal.tell({ kind: 'read', tasks });
  }

  async work(): Promise<void> {
    if (this.settings.work > 0) await sleep(this.settings.work);
  }

  writing(): void {
    this.journal.tell({ kind: 'writing' });
  }

  pushed(jobs: readonly TaskJob[]): void {
    this.journal.tell({ kind: 'pushed', jobs: jobs.map(({ taskId, dispatch }) => `${taskId}#${dispatch}`) });
  }
}
