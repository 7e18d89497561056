import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { DispatchSteps } from '../../sample-app/dispatch/dispatch-steps.js';
import type { TaskJob } from '../../sample-app/queue/task-queue.js';
import { InstanceSettings } from './instance-settings.js';
import { Journal } from './journal.js';

/** Milliseconds between two looks at how long the work takes. */
const STEP_MS = 20;

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

  /** The lab may change the duration during the work. */
  async work(): Promise<void> {
    const began = performance.now();
    const left = (): number => this.settings.work - (performance.now() - began);
    while (left() > 0) await sleep(Math.min(left(), STEP_MS));
  }

  writing(): void {
    this.journal.tell({ kind: 'writing' });
  }

  pushed(jobs: readonly TaskJob[]): void {
    this.journal.tell({ kind: 'pushed', jobs: jobs.map(({ taskId, dispatch }) => `${taskId}#${dispatch}`) });
  }
}
