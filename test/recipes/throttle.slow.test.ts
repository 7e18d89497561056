import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { BullModule, getQueueToken } from '@nestjs/bullmq';
import type { INestApplication } from '@nestjs/common';
import type { Job, Queue } from 'bullmq';
import { setTimeout as sleep } from 'node:timers/promises';
import { startApp } from '../support/nest-app.js';
import { startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { Reports, ReportsProcessor } from './throttle.js';

// This block closes its workers in `afterAll`. The clean-up of the test file stops the server later.
describe('reports of tenants', () => {
  const apps: INestApplication[] = [];
  const running: string[] = [];
  const most = new Map<string, number>();
  const done: string[] = [];
  let queue: Queue;
  let smallHasEnded: () => void;
  const endOfSmall = new Promise<void>((resolve) => (smallHasEnded = resolve));

  const reports: Reports = {
    build: async (tenant) => {
      running.push(tenant);
      const now = running.filter((other) => other === tenant).length;
      most.set(tenant, Math.max(most.get(tenant) ?? 0, now));
      // The reports of the large tenant go on when that of the small one has ended, which therefore cannot wait for them.
      await (tenant === 'large' ? endOfSmall : sleep(200));
      running.splice(running.indexOf(tenant), 1);
      done.push(tenant);
      if (tenant === 'small') smallHasEnded();
      if (tenant === 'broken') throw new Error('broken');
      return tenant;
    },
  };

  beforeAll(async () => {
    const { host, port, url } = await startRedis();
    while (apps.length < 2) {
      const app = await startApp(
        {
          imports: [
            BullModule.forRoot({ connection: { host, port } }),
            BullModule.registerQueue({ name: 'reports' }),
          ],
          providers: [ReportsProcessor, { provide: Reports, useValue: reports }],
        },
        // `tryAcquire` makes one attempt, in which a node has a fifth of the ttl to answer. This long ttl gives a busy
        // machine enough time.
        { nodes: url, defaults: { ttl: 60_000 } },
      );
      apps.push(app);
    }
    queue = apps[0]!.get<Queue>(getQueueToken('reports'));
  });
  afterAll(() => Promise.all(apps.map((app) => app.close())));

  const ended = async ({ id = '' }: Job): Promise<Job> => {
    await until(async () => ['completed', 'failed'].includes(await queue.getJobState(id)));
    return (await queue.getJob(id))!;
  };

  test('at most two reports of a tenant run at a time, and a report of a different tenant does not wait for them', async () => {
    const large = await Promise.all(
      Array.from({ length: 8 }, () => queue.add('build', { tenant: 'large' }, { attempts: 1 })),
    );
    await until(() => running.length === 2);
    const small = await queue.add('build', { tenant: 'small' });
    const results = await Promise.all([...large, small].map(ended));
    expect(results.map(({ returnvalue }) => returnvalue as string)).toEqual([
      ...Array(8).fill('large'),
      'small',
    ]);
    expect(most.get('large')).toBe(2);
    expect(done[0]).toBe('small');
    // A job that waits for a permit has not failed, so BullMQ counts one attempt.
    expect(Math.max(...results.map(({ attemptsMade }) => attemptsMade))).toBe(1);
  });

  test('a report that fails releases its permit', async () => {
    const jobs = await Promise.all([1, 2, 3].map(() => queue.add('build', { tenant: 'broken' })));
    const results = await Promise.all(jobs.map(ended));
    expect(results.map(({ failedReason }) => failedReason)).toEqual(['broken', 'broken', 'broken']);
  });
});
