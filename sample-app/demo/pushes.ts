import { type JobType, Queue } from 'bullmq';
import { TASK_QUEUE, type TaskJob } from '../queue/task-queue.js';

const ALL_JOBS: JobType[] = ['waiting', 'active', 'completed', 'failed', 'delayed', 'prioritized'];

/** Counts the jobs in the queue itself, so that the number of pushes does not depend on the reports of instances. */
export class PushObserver {
  private readonly queue: Queue<TaskJob>;

  constructor(redisUrl: string, prefix: string) {
    this.queue = new Queue(TASK_QUEUE, { connection: { url: redisUrl, maxRetriesPerRequest: 1 }, prefix });
    this.queue.on('error', () => undefined);
  }

  /** Counts the jobs that no consumer has taken yet. */
  async waiting(): Promise<number> {
    return this.queue.getJobCountByTypes('waiting', 'prioritized', 'delayed');
  }

  /** Counts pushes and duplicates. A push is a duplicate if the same dispatch of the same task was pushed before. */
  async count(): Promise<{ pushes: number; duplicates: number }> {
    const jobs = await this.queue.getJobs(ALL_JOBS);
    const distinct = new Set(jobs.map(({ data }) => `${data.taskId} ${data.dispatch}`));
    return { pushes: jobs.length, duplicates: jobs.length - distinct.size };
  }

  /** Removes the queue from Redis. */
  async close(): Promise<void> {
    await this.queue.obliterate({ force: true });
    await this.queue.close();
  }
}
