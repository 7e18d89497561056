import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { DispatchSteps } from '../../sample-app/dispatch/dispatch-steps.js';
import type { TaskJob } from '../../sample-app/queue/task-queue.js';
import { InstanceSettings } from './instance-settings.js';
import { Journal } from './journal.js';

/** Blocks the event loop, as a computation does. */
function blockFor(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

/** Reports each step of a dispatch to the lab, and works for the time that the lab has set. */
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
    const { work, blocks } = this.settings;
    if (work <= 0) return;
    if (blocks) blockFor(work);
    else await sleep(work);
  }

  writing(): void {
    this.journal.tell({ kind: 'writing' });
  }

  pushed(jobs: readonly TaskJob[]): void {
    this.journal.tell({ kind: 'pushed', jobs: jobs.map(({ taskId, dispatch }) => `${taskId}#${dispatch}`) });
  }
}
