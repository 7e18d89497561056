import { Injectable } from '@nestjs/common';
import { currentLock, WithLock } from 'nestjs-redlock';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { type LockStrategy, PERMITS } from './lock-strategy.js';

type Task = (lock?: DispatchLock) => Promise<void>;

/** Time limit of a wait; longer than a run takes. The run shows when a caller gets the lock, not that a caller gives up. */
const PATIENCE = { timeout: 120_000 };

/** Locks of this package that several instances can hold at a time. */
@Injectable()
export class SeveralHoldersStrategy {
  /** Admits two instances at a time. */
  readonly permits: LockStrategy = { attempt: async (task) => (await this.asOneOfTwo(task)) ?? false };
  /** Admits several readers at a time, but no writer. */
  readonly shared: LockStrategy = { attempt: (task) => this.read(task) };
  /** Admits one writer, alone. */
  readonly exclusive: LockStrategy = { attempt: (task) => this.write(task) };

  @WithLock('batch:task:list', { permits: PERMITS, onBusy: 'skip' })
  async asOneOfTwo(task: Task): Promise<boolean | undefined> {
    await task(currentLock());
    return true;
  }

  @WithLock('batch:task:list', { mode: 'shared', retry: PATIENCE })
  async read(task: Task): Promise<boolean> {
    await task(currentLock());
    return true;
  }

  @WithLock('batch:task:list', { retry: PATIENCE })
  async write(task: Task): Promise<boolean> {
    await task(currentLock());
    return true;
  }
}
