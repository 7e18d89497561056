import { Controller, Get } from '@nestjs/common';
import type { TaskStatus } from '../tasks/task.js';
import { TaskRepository } from '../tasks/task.repository.js';
import { ActivityRepository, type InstanceActivity } from './activity.repository.js';

/** The answer of `GET /stats`. */
export interface Stats {
  readonly tasks: Record<TaskStatus, number>;
  readonly instances: readonly InstanceActivity[];
}

@Controller('stats')
export class StatsController {
  constructor(
    private readonly tasks: TaskRepository,
    private readonly activity: ActivityRepository,
  ) {}

  @Get()
  async stats(): Promise<Stats> {
    const [tasks, instances] = await Promise.all([this.tasks.countByStatus(), this.activity.list()]);
    return { tasks, instances };
  }
}
