import { Module } from '@nestjs/common';
import { TasksModule } from '../tasks/tasks.module.js';
import { TaskSweeper } from './task.sweeper.js';

@Module({
  imports: [TasksModule],
  providers: [TaskSweeper],
})
export class SweepModule {}
