import { Processor, WorkerHost } from '@nestjs/bullmq';
import type { OnModuleDestroy } from '@nestjs/common';
import type { Job } from 'bullmq';
import { WithLock } from 'nestjs-redlock';

@Processor('orders')
export class OrdersProcessor extends WorkerHost implements OnModuleDestroy {
  /** Takes no more jobs, and waits for the running jobs, whose locks are still renewed. */
  async onModuleDestroy(): Promise<void> {
    await this.worker.close();
  }

  @WithLock((job: Job<number>) => `order:${job.data}`)
  override async process(job: Job<number>): Promise<number> {
    await fetch(`https://orders.example/${job.data}/settle`, { method: 'POST' });
    return job.data;
  }
}
