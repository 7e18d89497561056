import { BullModule } from '@nestjs/bullmq';
import { type DynamicModule, Module, type Provider, StandardSchemaValidationPipe } from '@nestjs/common';
import { APP_FILTER, APP_PIPE } from '@nestjs/core';
import { ScheduleModule } from '@nestjs/schedule';
import { RedlockModule } from 'nestjs-redlock';
import { RedlockBoardModule } from 'nestjs-redlock/board';
import { ThisMachineGuard } from './board/this-machine.guard.js';
import { EnvironmentModule } from './config/environment.module.js';
import type { Environment } from './config/environment.js';
import { lockNodes } from './config/lock-store.js';
import { DatabaseModule } from './database/database.module.js';
import { ErrorFilter } from './error.filter.js';
import { DispatchModule } from './dispatch/dispatch.module.js';
import { ConsumerModule } from './queue/consumer.module.js';
import { StatsModule } from './stats/stats.module.js';
import { SweepModule } from './sweep/sweep.module.js';
import { TasksModule } from './tasks/tasks.module.js';

/** An instance of the batch scheduler. */
@Module({})
export class AppModule {
  /** @param dispatching - see {@link DispatchModule.register} */
  static register(environment: Environment, dispatching?: readonly Provider[]): DynamicModule {
    const { REDIS_URLS, KEY_PREFIX, INSTANCE, LOCK_TTL } = environment;
    return {
      module: AppModule,
      imports: [
        EnvironmentModule.register(environment),
        DatabaseModule,
        RedlockModule.forRoot({
          nodes: lockNodes(environment),
          keyPrefix: `${KEY_PREFIX}:lock:`,
          owner: INSTANCE,
          nodeTimeout: environment.LOCK_NODE_TIMEOUT,
          restartGuard: environment.LOCK_RESTART_GUARD,
          defaults: { ttl: LOCK_TTL },
        }),
        RedlockBoardModule.forRoot({ path: '/locks', guards: [ThisMachineGuard] }),
        BullModule.forRoot({
          connection: { url: REDIS_URLS[0], maxRetriesPerRequest: null },
          prefix: KEY_PREFIX,
          // The database has all results, so finished jobs stay in the queue only for a while, for people who look at
          // the queue.
          defaultJobOptions: { removeOnComplete: { age: 3_600 }, removeOnFail: { age: 86_400 } },
        }),
        ScheduleModule.forRoot(),
        TasksModule,
        DispatchModule.register(environment, dispatching),
        ConsumerModule,
        SweepModule,
        StatsModule,
      ],
      providers: [
        { provide: APP_PIPE, useClass: StandardSchemaValidationPipe },
        { provide: APP_FILTER, useClass: ErrorFilter },
      ],
    };
  }
}
