import { setTimeout as sleep } from 'node:timers/promises';
import { OnWorkerEvent, Processor, WorkerHost } from '@nestjs/bullmq';
import { Logger } from '@nestjs/common';
import type { Job } from 'bullmq';
import { ActivityRepository } from '../stats/activity.repository.js';
import { TaskRepository, type TakenTask } from '../tasks/task.repository.js';
import { TASK_QUEUE, type TaskJob } from './task-queue.js';

const HEARTBEAT_MS = 1_000;

/**
 * Takes tasks from the queue, on every instance.
 *
 * The database alone decides what is tried again. So the queue must not: a job whose consumer died is not
 * delivered once more (`maxStalledCount`). Its task is still marked as processing, without a heartbeat; the sweep
 * finds it and the dispatcher pushes it for its next attempt.
 */
@Processor(TASK_QUEUE, { concurrency: 10, maxStalledCount: 0 })
export class TaskConsumer extends WorkerHost {
  private readonly logger = new Logger(TaskConsumer.name);
  private lastError: string | undefined;

  constructor(
    private readonly tasks: TaskRepository,
    private readonly activity: ActivityRepository,
  ) {
    super();
  }

  /** @returns the outcome of the job, which tools for the queue show */
  override async process({ data }: Job<TaskJob>): Promise<'done' | 'failed' | 'refused'> {
    const task = await this.tasks.markProcessing(data.taskId);
    if (!task) {
      await this.activity.jobRefused();
      return 'refused';
    }
    const heartbeat = setInterval(() => {
      this.tasks.heartbeat(task).catch((error: Error) => this.logger.warn(`heartbeat: ${error.message}`));
    }, HEARTBEAT_MS);
    try {
      await work(task);
    } catch (error) {
      await this.tasks.markFailed(task, (error as Error).message);
      return 'failed';
    } finally {
      clearInterval(heartbeat);
    }
    await this.tasks.markDone(task);
    return 'done';
  }

  /** While Redis is down the worker reports every attempt to connect; once is enough. */
  @OnWorkerEvent('error')
  reportError({ message, code }: NodeJS.ErrnoException): void {
    const error = message || code;
    if (error !== this.lastError) this.logger.warn(`queue: ${error}`);
    this.lastError = error;
  }

  @OnWorkerEvent('ready')
  forgetError(): void {
    this.lastError = undefined;
  }
}

/** Stands for the real work of a batch service. */
async function work({ payload: { items, msPerItem, failures }, attempt }: TakenTask): Promise<void> {
  await sleep(items * msPerItem);
  if (failures === 'always' || attempt <= failures)
    throw new Error(`attempt ${attempt} failed, as the task asks`);
}
