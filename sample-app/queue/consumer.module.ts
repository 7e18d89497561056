import { Module } from '@nestjs/common';
import { StatsModule } from '../stats/stats.module.js';
import { TasksModule } from '../tasks/tasks.module.js';
import { TaskConsumer } from './task.consumer.js';

@Module({
  imports: [TasksModule, StatsModule],
  providers: [TaskConsumer],
})
export class ConsumerModule {}
