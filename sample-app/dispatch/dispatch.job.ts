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

/** Members of a lock that the dispatcher uses. A home-made lock may have only a token. */
export interface DispatchLock extends TokenHolder {
  /** @throws Error when the lock is no longer held */
  assertHeld?(): void;
}

/** Moves waiting tasks from the database to the queue. This is correct only if one instance does it at a time. */
@Injectable()
export class DispatchJob {
  constructor(
    private readonly tasks: TaskRepository,
    private readonly activity: ActivityRepository,
    private readonly steps: DispatchSteps,
    @InjectQueue(TASK_QUEUE) private readonly queue: Queue<TaskJob>,
    @Inject(ENVIRONMENT) private readonly environment: Environment,
  ) {}

  /**
   * Dispatches once.
   *
   * @returns the number of tasks that this run moved
   */
  async run(lock: DispatchLock | undefined = currentLock()): Promise<number> {
    await this.activity.dispatchStarted();
    try {
      // If the queue cannot be reached, this call fails before any task is marked.
      await this.queue.count();

      const tasks = await this.tasks.readDispatchable(this.environment.DISPATCH_BATCH, lock);
      this.steps.read(tasks.length);
      if (tasks.length === 0) return 0;
      await this.steps.work();

      // Here the dispatch can still stop without any damage. Without a lock there is nothing to check. If this process
      // is paused just after the check, the lock can pass to another holder. Then the database refuses the fencing
      // token of this process.
      lock?.assertHeld?.();
      this.steps.writing();

      // Tasks are marked before they are pushed: consumers take only marked tasks, and would refuse a job that comes
      // before its mark. A process that dies in between leaves tasks marked and not pushed; the sweep makes
      // them pending again.
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

  /** Puts marked tasks into the queue. */
  async push(tasks: readonly DispatchableTask[]): Promise<void> {
    const jobs = tasks.map(jobOf);
    await this.queue.addBulk(jobs.map((data) => ({ name: 'task', data })));
    this.steps.pushed(jobs);
  }
}

function jobOf({ id, dispatches }: DispatchableTask): TaskJob {
  return { taskId: id, dispatch: dispatches + 1 };
}
