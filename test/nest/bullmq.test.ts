import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { BullModule, getQueueToken, OnWorkerEvent, Processor, WorkerHost } from '@nestjs/bullmq';
import { type INestApplication, Injectable } from '@nestjs/common';
import type { Job, Queue } from 'bullmq';
import { currentLock, LockService, WithLock } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';
import { until } from '../support/until.js';

const overlap = new Overlap();
const completed: string[] = [];

@Processor('plain', { concurrency: 4 })
class Plain extends WorkerHost {
  @WithLock((job: Job<string>) => `job:${job.data}`, { retry: { timeout: 60_000, delay: 1, jitter: 0 } })
  override async process(_job: Job<string>): Promise<string> {
    await overlap.work(50);
    return String(currentLock()?.keys);
  }
}

@Processor('refused')
class Refused extends WorkerHost {
  @WithLock('refused', { retry: false })
  override async process(): Promise<string> {
    return String(currentLock()?.keys);
  }
}

const orders = permutations<Named>([
  ['OnWorkerEvent', () => OnWorkerEvent('completed')],
  ['WithLock', () => WithLock((job: Job) => `completed:${job.queueName}`) as MethodDecorator],
]);
const processors = orders.map((order, index) => {
  @Injectable()
  @Processor(`listens${index}`)
  class Listens extends WorkerHost {
    override async process(): Promise<void> {}

    async onCompleted(): Promise<void> {
      completed.push(String(currentLock()?.keys));
    }
  }
  const decorators = order.map(([, decorator]) => decorator(''));
  stack(Listens, 'onCompleted', decorators);
  return Listens;
});

const names = ['plain', 'refused', 'listens0', 'listens1'];
let server: RedisServer;
let app: INestApplication | undefined;

const queue = (name: string): Queue => app!.get<Queue>(getQueueToken(name));

/**
 * Resolves to the results of the jobs. `waitUntilFinished` can wait for ever: BullMQ first checks if a job has finished,
 * and then begins to read events, so it misses a job that finishes in between.
 */
async function results(name: string, jobs: Promise<Job>[]): Promise<unknown[]> {
  return Promise.all(
    jobs.map(async (added) => {
      const { id = '' } = await added;
      await until(async () => (await queue(name).getJobState(id)) === 'completed');
      return (await queue(name).getJob(id))?.returnvalue as unknown;
    }),
  );
}

// The afterAll of this block closes the application while the server still runs.
describe('queue processors', () => {
  beforeAll(async () => {
    server = await startRedis();
    await startApp(
      {
        imports: [
          BullModule.forRoot({ connection: { host: server.host, port: server.port } }),
          BullModule.registerQueue(...names.map((name) => ({ name }))),
        ],
        providers: [Plain, Refused, ...processors],
      },
      { nodes: server.url },
      // afterAll must close the application even if it does not start, because running workers keep Jest from ending.
      { prepare: (nest) => (app = nest) },
    );
  });
  afterAll(async () => {
    await app?.close();
    await server.stop();
  });

  test('BullMQ jobs with the same lock key run one after the other', async () => {
    const jobs = ['one', 'one', 'one'].map((id) => queue('plain').add('job', id));
    await expect(results('plain', jobs)).resolves.toEqual(['job:one', 'job:one', 'job:one']);
    expect(overlap).toMatchObject({ runs: 3, most: 1 });
  });

  test('a job whose lock is refused fails, and BullMQ retries it', async () => {
    const lock = await app!.get(LockService).acquire('refused');
    // A thousand attempts last until the test has seen the refusal, also on a busy machine.
    const again = { attempts: 1_000, backoff: { type: 'fixed', delay: 50 } };
    const job = await queue('refused').add('job', '', again);
    await until(async () => {
      const current = await queue('refused').getJob(job.id!);
      return current?.failedReason?.includes('"refused" is held by') ?? false;
    });
    await lock.release();
    await expect(results('refused', [Promise.resolve(job)])).resolves.toEqual(['refused']);
  });

  test.each(orders.map((order, index) => [nameOf(order), `listens${index}`] as const))(
    'a listener with %s runs under its lock',
    async (_name, name) => {
      await queue(name).add('job', '');
      await until(() => completed.length > 0);
      expect(completed.splice(0)).toEqual([`completed:${name}`]);
    },
  );
});
