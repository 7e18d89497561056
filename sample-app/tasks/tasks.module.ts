import { Module } from '@nestjs/common';
import { TaskRepository } from './task.repository.js';
import { TasksController } from './tasks.controller.js';

@Module({
  controllers: [TasksController],
  providers: [TaskRepository],
  exports: [TaskRepository],
})
export class TasksModule {}
