import { InjectQueue } from '@nestjs/bullmq';
import { Inject, Injectable } from '@nestjs/common';
import type { Queue } from 'bullmq';
import { currentLock } from 'nestjs-redlock';
import type { TokenHolder } from 'nestjs-redlock/fencing';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import { TASK_QUEUE, type TaskJob } from '../queue/task-queue.js';
import { ActivityRepository } from '../stats/activity.repository.js';
import { type DispatchableTask, TaskRepository } from '../tasks/task.repository.js';
import { DispatchSteps } from './dispatch-steps.js';

/** Members of a lock that the dispatcher uses. A home-made lock may have only its token. */
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
    private readonly steps: DispatchSteps,
    @InjectQueue(TASK_QUEUE) private readonly queue: Queue<TaskJob>,
    @Inject(ENVIRONMENT) private readonly environment: Environment,
  ) {}

  /** @returns the number of moved tasks */
  async run(lock: DispatchLock | undefined = currentLock()): Promise<number> {
    await this.activity.dispatchStarted();
    try {
      // Fails while the queue cannot be reached: better now than when the tasks are marked.
      await this.queue.count();

      const tasks = await this.tasks.readDispatchable(this.environment.DISPATCH_BATCH, lock);
      this.steps.read(tasks.length);
      if (tasks.length === 0) return 0;
      await this.steps.work();

      // The last moment at which stopping costs nothing. Without a lock there is nothing to ask. Should this process
      // be paused right after it, the fencing token of a lock that has passed on is refused by the database.
      lock?.assertHeld?.();
      this.steps.writing();

      // Marked first, pushed second: consumers take only tasks that are marked, so a job that overtook its mark
      // would be refused. Dying in between leaves tasks marked but never pushed; the sweep returns them.
      await this.tasks.markEnqueued(
        tasks.map(({ id }) => id),
        lock,
      );
      await this.push(tasks);
      return tasks.length;
    } finally {
      await this.activity.dispatchEnded();
    }
  }

  /** Puts tasks that are marked into the queue. */
  async push(tasks: readonly DispatchableTask[]): Promise<void> {
    const jobs = tasks.map(jobOf);
    await this.queue.addBulk(jobs.map((data) => ({ name: 'task', data })));
    this.steps.pushed(jobs);
  }
}

function jobOf({ id, dispatches }: DispatchableTask): TaskJob {
  return { taskId: id, dispatch: dispatches + 1 };
}
