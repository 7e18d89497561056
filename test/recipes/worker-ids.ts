import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable, Logger, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { type LockHandle, LockService } from 'nestjs-redlock';

/** Milliseconds by which the clocks of two workers may differ. */
const CLOCKS_DIFFER = 1_000;

@Injectable()
export class Ids implements OnModuleInit, OnModuleDestroy {
  private readonly logger = new Logger(Ids.name);
  private worker: LockHandle | undefined;
  private last = 0;
  private count = 0;
  private isClosing = false;

  constructor(private readonly locks: LockService) {}

  /** A worker without a number does not start. */
  async onModuleInit(): Promise<void> {
    await this.enlist();
  }

  onModuleDestroy(): void {
    this.isClosing = true;
  }

  /** @throws LockLostError while this worker has no number */
  next(): bigint {
    const now = Math.max(Date.now(), this.last);
    this.count = now === this.last ? this.count + 1 : 0;
    this.last = now;
    if (this.count > 4_095) throw new Error('4,096 ids in this millisecond: try again in the next');
    // Check the lock after reading the time. A held lock proves that the number belonged to this worker at that time.
    this.worker!.assertHeld();
    return (BigInt(now) << 22n) | (BigInt(this.worker!.slot!) << 12n) | BigInt(this.count);
  }

  /** Takes a number, and another number when the lock is lost. */
  private async enlist(): Promise<void> {
    // A `timeout` in the `defaults` of the module may be shorter.
    const retry = { timeout: 30_000 };
    const worker = await this.locks.acquire('worker-id', { permits: 1_000, ttl: 60_000, retry });
    worker.signal.addEventListener('abort', () => void this.enlistAgain());
    // The clock of the previous worker with this number may have been ahead by `CLOCKS_DIFFER`.
    await sleep(CLOCKS_DIFFER);
    this.worker = worker;
  }

  /** Tries again until it has a number or the application shuts down. */
  private async enlistAgain(): Promise<void> {
    while (!this.isClosing) {
      try {
        return await this.enlist();
      } catch (error) {
        this.logger.log(error);
        await sleep(CLOCKS_DIFFER);
      }
    }
  }
}
