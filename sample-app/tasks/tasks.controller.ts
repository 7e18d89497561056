import {
  Body,
  Controller,
  Get,
  HttpCode,
  HttpStatus,
  NotFoundException,
  Param,
  ParseUUIDPipe,
  Post,
} from '@nestjs/common';
import { type CreateTasks, createTasksSchema } from './create-tasks.schema.js';
import type { Task } from './task.js';
import { TaskRepository } from './task.repository.js';

@Controller('tasks')
export class TasksController {
  constructor(private readonly tasks: TaskRepository) {}

  /** Answers when the tasks are stored; the dispatcher finds them in the database. */
  @Post()
  @HttpCode(HttpStatus.ACCEPTED)
  async create(@Body({ schema: createTasksSchema }) body: CreateTasks): Promise<{ ids: string[] }> {
    return { ids: await this.tasks.insert(body.tasks) };
  }

  @Get(':id')
  async find(@Param('id', ParseUUIDPipe) id: string): Promise<Task> {
    const task = await this.tasks.find(id);
    if (!task) throw new NotFoundException(`There is no task ${id}`);
    return task;
  }
}
