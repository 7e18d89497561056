import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { type Logger, schedule, type ScheduledTask, type TaskContext } from 'node-cron';
import { LockService } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { renewed } from '../support/renewed.js';
import { until } from '../support/until.js';
import { LockRunCoordinator } from './node-cron.js';

const QUIET: Logger = { info() {}, warn() {}, error() {}, debug() {} };

describe('tasks of node-cron on several instances', () => {
  let server: RedisServer;
  const apps: INestApplication[] = [];
  const tasks: ScheduledTask[] = [];

  beforeAll(async () => {
    server = await startRedis();
    while (apps.length < 3) apps.push(await startApp({}, { nodes: server.url }));
  });
  afterAll(async () => {
    await Promise.all(tasks.map((task) => task.destroy()));
    await Promise.all(apps.map((app) => app.close()));
  });

  const coordinatorOf = (app: INestApplication | undefined): LockRunCoordinator =>
    new LockRunCoordinator(app!.get(LockService));

  function every(name: string, app: INestApplication, run: (context: TaskContext) => unknown): ScheduledTask {
    const runCoordinator = coordinatorOf(app);
    const task = schedule('* * * * * *', run, { name, distributed: true, runCoordinator, logger: QUIET });
    tasks.push(task);
    return task;
  }

  test('each tick of a task runs on exactly one instance', async () => {
    const runs: number[] = [];
    const skipped: string[] = [];
    for (const app of apps) {
      const task = every('report', app, ({ date }) => runs.push(date.getTime()));
      task.on('execution:skipped', ({ date, reason }) => void skipped.push(`${reason} ${date.getTime()}`));
    }
    await until(() => runs.length >= 3 && skipped.length >= 6);
    await Promise.all(tasks.splice(0).map((task) => task.destroy()));
    expect(new Set(runs).size).toBe(runs.length);
    expect(runs.every((moment) => moment % 1_000 === 0)).toBe(true);
    expect(skipped.every((line) => line.startsWith('not-elected'))).toBe(true);
  });

  test('a late instance skips a tick that has run on another instance, even if the run failed', async () => {
    const failed: number[] = [];
    const completed: string[] = [];
    const onComplete = LockRunCoordinator.prototype.onComplete;
    jest.spyOn(LockRunCoordinator.prototype, 'onComplete').mockImplementation(async function (
      this: LockRunCoordinator,
      run,
    ) {
      await onComplete.call(this, run);
      completed.push(run);
    });
    const failing = every('fails', apps[0]!, ({ date }) => {
      failed.push(date.getTime());
      throw new Error('failed');
    });
    // When `onComplete` has resolved, the lock is released.
    await until(() => completed.length > 0);
    await failing.destroy();
    jest.restoreAllMocks();
    const run = `fails:${new Date(failed[0]!).toISOString()}`;
    expect(completed[0]).toBe(run);
    await expect(coordinatorOf(apps[1]).shouldRun(run, 30_000)).resolves.toBe(false);
  });

  test('the lock of a task is renewed during a long run', async () => {
    const ttl = 6_000;
    const [one, other] = apps.map(coordinatorOf);
    await expect(one!.shouldRun('long:tick', ttl)).resolves.toBe(true);
    await renewed(server.client(), 'lock:{cron:long:tick}');
    await expect(other!.shouldRun('long:tick', ttl)).resolves.toBe(false);
    await one!.onComplete('long:tick');
    await expect(other!.shouldRun('long:tick', ttl)).resolves.toBe(false);
  });

  test('a task does not run while Redis is down', async () => {
    const away = await startRedis();
    const app = await startApp({}, { nodes: away.url, nodeTimeout: 200 });
    apps.push(app);
    await away.kill();
    const reasons: unknown[] = [];
    const task = every('away', app, () => reasons.push('run'));
    task.on('execution:skipped', ({ reason }) => void reasons.push(reason));
    await until(() => reasons.length > 0);
    await task.destroy();
    expect(reasons[0]).toBe('coordinator-error');
    expect(reasons).not.toContain('run');
  });
});
