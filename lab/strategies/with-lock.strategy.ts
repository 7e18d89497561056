import { Injectable } from '@nestjs/common';
import { WithLock } from 'nestjs-redlock';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { Journal } from '../instance/journal.js';
import type { LockStrategy } from './lock-strategy.js';
import { withReportedRenewals } from './reported-renewals.js';

/** The lock of this package. Its ttl is the default of the module, which each run sets. */
@Injectable()
export class WithLockStrategy implements LockStrategy {
  constructor(private readonly journal: Journal) {}

  async attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean> {
    return (await this.dispatch(task)) ?? false;
  }

  @WithLock('batch:task:list', { onBusy: 'skip' })
  dispatch(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean | undefined> {
    return withReportedRenewals(this.journal, task);
  }
}
