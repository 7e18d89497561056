import { Injectable } from '@nestjs/common';
import { currentLock, WithLock } from 'nestjs-redlock';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { Journal } from '../instance/journal.js';
import type { LockStrategy } from './lock-strategy.js';

const POLL_MS = 50;

/** The lock of this package. Its ttl is the default of the module, which each run sets. */
@Injectable()
export class WithLockStrategy implements LockStrategy {
  constructor(private readonly journal: Journal) {}

  async attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean> {
    return (await this.dispatch(task)) ?? false;
  }

  @WithLock('batch:task:list', { onBusy: 'skip' })
  async dispatch(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean | undefined> {
    const lock = currentLock();
    if (!lock) return undefined;
    const renewals = this.watchRenewals(() => lock.remaining());
    try {
      await task(lock);
    } finally {
      clearInterval(renewals);
    }
    return true;
  }

  /** Reports renewals: only a renewal makes the remaining time longer. */
  private watchRenewals(remaining: () => number): NodeJS.Timeout {
    let last = remaining();
    return setInterval(() => {
      const now = remaining();
      if (now > last) this.journal.tell({ kind: 'renewed' });
      last = now;
    }, POLL_MS);
  }
}
