import { Module } from '@nestjs/common';
import { TasksModule } from '../tasks/tasks.module.js';
import { ActivityRepository } from './activity.repository.js';
import { StatsController } from './stats.controller.js';

@Module({
  imports: [TasksModule],
  controllers: [StatsController],
  providers: [ActivityRepository],
  exports: [ActivityRepository],
})
export class StatsModule {}
