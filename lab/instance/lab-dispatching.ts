import type { Provider } from '@nestjs/common';
import { DispatchSteps } from '../../sample-app/dispatch/dispatch-steps.js';
import { DatabaseDispatch } from '../strategies/database-dispatch.js';
import { SeveralHoldersStrategy } from '../strategies/several-holders.strategy.js';
import { StrategyDispatcher } from '../strategies/strategy.dispatcher.js';
import { ThreadStrategy } from '../strategies/thread.strategy.js';
import { WithLockStrategy } from '../strategies/with-lock.strategy.js';
import { InstanceSettings } from './instance-settings.js';
import { JournaledSteps } from './journaled-steps.js';
import { Journal } from './journal.js';

/** Returns the providers with which an instance of the sample app dispatches by a strategy, and reports to the lab. */
export function labDispatching(settings: InstanceSettings): Provider[] {
  return [
    Journal,
    { provide: InstanceSettings, useValue: settings },
    { provide: DispatchSteps, useClass: JournaledSteps },
    WithLockStrategy,
    ...(settings.strategy === 'with-thread' ? [ThreadStrategy] : []),
    SeveralHoldersStrategy,
    DatabaseDispatch,
    StrategyDispatcher,
  ];
}
