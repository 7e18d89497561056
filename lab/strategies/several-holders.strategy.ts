import { Injectable } from '@nestjs/common';
import { currentLock, WithLock } from 'nestjs-redlock';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { type LockStrategy, PERMITS } from './lock-strategy.js';

type Task = (lock?: DispatchLock) => Promise<void>;

/** Longer than a run takes: what is shown is when somebody's turn comes, not that somebody gives up. */
const PATIENCE = { timeout: 120_000 };

/** Locks of this package that several instances hold at a time. */
@Injectable()
export class SeveralHoldersStrategy {
  /** Two at a time. */
  readonly permits: LockStrategy = { attempt: async (task) => (await this.asOneOfTwo(task)) ?? false };
  /** Readers together. */
  readonly shared: LockStrategy = { attempt: (task) => this.read(task) };
  /** A writer alone. */
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
