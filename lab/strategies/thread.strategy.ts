import { Injectable } from '@nestjs/common';
import { WithLock } from 'nestjs-redlock';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { Journal } from '../instance/journal.js';
import type { LockStrategy } from './lock-strategy.js';
import { withReportedRenewals } from './reported-renewals.js';

/**
 * The lock of this package that a worker thread renews. An application with this class starts that thread, so only runs
 * with this strategy have it.
 */
@Injectable()
export class ThreadStrategy implements LockStrategy {
  constructor(private readonly journal: Journal) {}

  async attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean> {
    return (await this.dispatch(task)) ?? false;
  }

  @WithLock('batch:task:list', { onBusy: 'skip', renew: 'thread' })
  dispatch(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean | undefined> {
    return withReportedRenewals(this.journal, task);
  }
}
