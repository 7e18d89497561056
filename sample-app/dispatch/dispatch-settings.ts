import { Inject, Injectable } from '@nestjs/common';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import type { StrategyName } from '../strategies/strategy-names.js';

/** What the lock lab changes while an instance runs. */
@Injectable()
export class DispatchSettings {
  strategy: StrategyName;
  /** Milliseconds between reading and marking. */
  work: number;
  /** Whether the timer does anything. */
  active = true;

  constructor(@Inject(ENVIRONMENT) { LOCK_STRATEGY = 'none', DISPATCH_WORK }: Environment) {
    this.strategy = LOCK_STRATEGY;
    this.work = DISPATCH_WORK;
  }
}
