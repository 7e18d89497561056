import { Processor, WorkerHost } from '@nestjs/bullmq';
import { DelayedError, type Job } from 'bullmq';
import { LockService } from 'nestjs-redlock';

export abstract class Reports {
  abstract build(tenant: string): Promise<string>;
}

/** Number of jobs of one tenant that may run at a time, over all workers. */
const AT_A_TIME = 2;

@Processor('reports', { concurrency: 20 })
export class ReportsProcessor extends WorkerHost {
  constructor(
    private readonly locks: LockService,
    private readonly reports: Reports,
  ) {
    super();
  }

  override async process(job: Job<{ tenant: string }>, token?: string): Promise<string> {
    const { tenant } = job.data;
    const permit = await this.locks.tryAcquire(`report:${tenant}`, { permits: AT_A_TIME });
    if (!permit) {
      // The job goes back into the queue. If it waited here, the worker could not serve other tenants.
      await job.moveToDelayed(Date.now() + 1_000 + Math.random() * 1_000, token);
      throw new DelayedError();
    }
    try {
      return await this.reports.build(tenant);
    } finally {
      await permit.release();
    }
  }
}
