import { BullModule } from '@nestjs/bullmq';
import { type DynamicModule, Module } from '@nestjs/common';
import type { Environment } from '../config/environment.js';
import { TASK_QUEUE } from '../queue/task-queue.js';
import { StatsModule } from '../stats/stats.module.js';
import { TasksModule } from '../tasks/tasks.module.js';
import { Journal } from '../journal/journal.js';
import { StrategyDispatcher } from '../strategies/strategy.dispatcher.js';
import { WithLockStrategy } from '../strategies/with-lock.strategy.js';
import { DispatchJob } from './dispatch.job.js';
import { DispatchSettings } from './dispatch-settings.js';
import { LockedDispatcher } from './locked.dispatcher.js';
import { UnlockedDispatcher } from './unlocked.dispatcher.js';

const DISPATCHERS = { locked: LockedDispatcher, unlocked: UnlockedDispatcher };

@Module({})
export class DispatchModule {
  static register({ DISPATCHER, LOCK_STRATEGY, REDIS_URLS }: Environment): DynamicModule {
    return {
      module: DispatchModule,
      imports: [
        TasksModule,
        StatsModule,
        BullModule.registerQueue({
          name: TASK_QUEUE,
          // While Redis is down a push must fail, not wait: by the time it went through, the sweep might have
          // returned the tasks and another instance might have pushed them.
          connection: { url: REDIS_URLS[0], enableOfflineQueue: false, maxRetriesPerRequest: 0 },
        }),
      ],
      providers: [
        DispatchJob,
        DispatchSettings,
        Journal,
        ...(LOCK_STRATEGY === undefined ? [DISPATCHERS[DISPATCHER]] : [StrategyDispatcher, WithLockStrategy]),
      ],
    };
  }
}
