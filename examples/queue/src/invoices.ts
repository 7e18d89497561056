import { setTimeout as sleep } from 'node:timers/promises';
import { InjectQueue, Processor, WorkerHost } from '@nestjs/bullmq';
import { Injectable } from '@nestjs/common';
import type { Job, Queue } from 'bullmq';
import { WithLock } from 'nestjs-redlock';

export interface Invoice {
  readonly customer: string;
  readonly number: number;
}

/** Takes five jobs at a time. Jobs of one customer run one after the other, over all workers. */
@Processor('invoices', { concurrency: 5 })
export class InvoiceWorker extends WorkerHost {
  @WithLock(({ data }: Job<Invoice>) => `customer:${data.customer}`, { retry: { timeout: 30_000 } })
  override async process({ data: { customer, number } }: Job<Invoice>): Promise<void> {
    console.log(`${customer}: begins invoice ${number}`);
    await sleep(200);
    console.log(`${customer}: ends invoice ${number}`);
  }
}

@Injectable()
export class InvoiceQueue {
  constructor(@InjectQueue('invoices') private readonly queue: Queue<Invoice>) {}

  /** Adds a job. BullMQ tries it again when it fails with LockHeldError after a long wait for its lock. */
  async add(invoice: Invoice): Promise<void> {
    await this.queue.add('invoice', invoice, {
      attempts: 5,
      backoff: { type: 'exponential', delay: 1_000 },
      removeOnComplete: true,
    });
  }
}
