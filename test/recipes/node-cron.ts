import type { LockHandle, LockService } from 'nestjs-redlock';
import type { RunCoordinator } from 'node-cron';

export class LockRunCoordinator implements RunCoordinator {
  private readonly runs = new Map<string, LockHandle>();

  constructor(private readonly locks: LockService) {}

  /** @param run - the name of the task and the scheduled time of the tick, so that each tick has its own key */
  async shouldRun(run: string, ttl: number): Promise<boolean> {
    const lock = await this.locks.tryAcquire(`cron:${run}`, { ttl, minHold: 60_000 });
    if (lock) this.runs.set(run, lock);
    return lock !== null;
  }

  async onComplete(run: string): Promise<void> {
    await this.runs.get(run)?.release();
    this.runs.delete(run);
  }
}
