import { BullModule } from '@nestjs/bullmq';
import { type DynamicModule, Module, type Provider } from '@nestjs/common';
import type { Environment } from '../config/environment.js';
import { TASK_QUEUE } from '../queue/task-queue.js';
import { StatsModule } from '../stats/stats.module.js';
import { TasksModule } from '../tasks/tasks.module.js';
import { DispatchJob } from './dispatch.job.js';
import { DispatchSteps } from './dispatch-steps.js';
import { LockedDispatcher } from './locked.dispatcher.js';
import { UnlockedDispatcher } from './unlocked.dispatcher.js';

const DISPATCHERS = { locked: LockedDispatcher, unlocked: UnlockedDispatcher };

@Module({})
export class DispatchModule {
  /** @param dispatching - providers in place of {@link DispatchSteps} and of the dispatcher that `DISPATCHER` names */
  static register(
    { DISPATCHER, REDIS_URLS }: Environment,
    dispatching: readonly Provider[] = [DISPATCHERS[DISPATCHER], DispatchSteps],
  ): DynamicModule {
    return {
      module: DispatchModule,
      imports: [
        TasksModule,
        StatsModule,
        BullModule.registerQueue({
          name: TASK_QUEUE,
          // While Redis is down, a push must fail immediately. A push that waited could arrive after the sweep has
          // made the tasks pending again and another instance has pushed them.
          connection: { url: REDIS_URLS[0], enableOfflineQueue: false, maxRetriesPerRequest: 0 },
        }),
      ],
      providers: [DispatchJob, ...dispatching],
    };
  }
}
