import { setTimeout as sleep } from 'node:timers/promises';
import { InjectQueue } from '@nestjs/bullmq';
import { Inject, Injectable } from '@nestjs/common';
import type { Queue } from 'bullmq';
import { currentLock } from 'nestjs-redlock';
import type { TokenHolder } from 'nestjs-redlock/fencing';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import { Journal } from '../journal/journal.js';
import { TASK_QUEUE, type TaskJob } from '../queue/task-queue.js';
import { ActivityRepository } from '../stats/activity.repository.js';
import { type DispatchableTask, TaskRepository } from '../tasks/task.repository.js';
import { DispatchSettings } from './dispatch-settings.js';

/** What the dispatcher asks of the lock it runs under. A home-made one may know no more than its token. */
export interface DispatchLock extends TokenHolder {
  /** @throws Error when the lock is no longer held */
  assertHeld?(): void;
}

/** Moves tasks that wait in the database to the queue. Right only when one instance does it at a time. */
@Injectable()
export class DispatchJob {
  constructor(
    private readonly tasks: TaskRepository,
    private readonly activity: ActivityRepository,
    private readonly journal: Journal,
    private readonly settings: DispatchSettings,
    @InjectQueue(TASK_QUEUE) private readonly queue: Queue<TaskJob>,
    @Inject(ENVIRONMENT) private readonly environment: Environment,
  ) {}

  /** @returns how many tasks it moved */
  async run(lock: DispatchLock | undefined = currentLock()): Promise<number> {
    await this.activity.dispatchStarted();
    try {
      // Fails while the queue cannot be reached: better now than when the tasks are marked.
      await this.queue.count();

      const tasks = await this.tasks.readDispatchable(this.environment.DISPATCH_BATCH, lock);
      this.journal.tell({ kind: 'read', tasks: tasks.length });
      if (tasks.length === 0) return 0;

      // Stands for what a real dispatcher does with the tasks here: group, price, reserve.
      if (this.settings.work > 0) await sleep(this.settings.work);

      // The last moment at which stopping costs nothing. Without a lock there is nothing to ask. Should this process
      // be paused right after it, the fencing token of a lock that has passed on is refused by the database.
      lock?.assertHeld?.();
      this.journal.tell({ kind: 'writing' });

      // Marked first, pushed second: consumers take only tasks that are marked, so a job that overtook its mark
      // would be refused. Dying in between leaves tasks marked but never pushed; the sweep returns them.
      await this.tasks.markEnqueued(
        tasks.map(({ id }) => id),
        lock,
      );
      await this.push(tasks.map(jobOf));
      return tasks.length;
    } finally {
      await this.activity.dispatchEnded();
    }
  }

  /** Without a lock: the database gives every row to one reader. @returns how many tasks it moved */
  async runSkippingLocked(): Promise<number> {
    const tasks = await this.tasks.takeDispatchable(this.environment.DISPATCH_BATCH, async ({ length }) => {
      this.journal.tell({ kind: 'read', tasks: length });
      if (length > 0) await sleep(this.settings.work);
    });
    if (tasks.length > 0) await this.push(tasks.map(jobOf));
    return tasks.length;
  }

  /** Without a lock: several may do the work, and the first one's result counts. @returns how many tasks it moved */
  async runOncePerDispatch(): Promise<number> {
    const tasks = await this.tasks.readDispatchable(this.environment.DISPATCH_BATCH);
    this.journal.tell({ kind: 'read', tasks: tasks.length });
    if (tasks.length === 0) return 0;
    await sleep(this.settings.work);
    const first = await this.tasks.markOncePerDispatch(tasks);
    if (first.length > 0) await this.push(first.map(jobOf));
    return first.length;
  }

  private async push(jobs: readonly TaskJob[]): Promise<void> {
    await this.queue.addBulk(jobs.map((data) => ({ name: 'task', data })));
    this.journal.tell({ kind: 'pushed', jobs: jobs.map(({ taskId, dispatch }) => `${taskId}#${dispatch}`) });
  }
}

function jobOf({ id, dispatches }: DispatchableTask): TaskJob {
  return { taskId: id, dispatch: dispatches + 1 };
}
