import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Pool } from 'pg';
import { LockService } from '../../lib/index.js';
import { readEnvironment } from '../../sample-app/config/environment.js';
import { createSchema } from '../../sample-app/database/schema.js';
import { TaskSweeper } from '../../sample-app/sweep/task.sweeper.js';
import { TaskRepository, type TakenTask } from '../../sample-app/tasks/task.repository.js';
import type { Task } from '../../sample-app/tasks/task.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { START_TIMEOUT, startServices, stopList } from './services.js';

const stops = stopList();
let redisUrl: string;
let pool: Pool;
let tasks: TaskRepository;

/** An hour in milliseconds. No test lasts so long, so a time limit passes only where a test makes a task older. */
const HOUR_MS = 3_600_000;
const MAX_ATTEMPTS = 2;

beforeAll(async () => {
  const services = await startServices();
  ({ redisUrl } = services);
  pool = new Pool({ connectionString: services.databaseUrl });
  pool.on('error', () => undefined);
  await stops.add(() => pool.end());
  await createSchema(pool);
  const environment = readEnvironment({
    INSTANCE: 'one',
    DATABASE_URL: services.databaseUrl,
    REDIS_URLS: redisUrl,
    ENQUEUED_TIMEOUT: String(HOUR_MS),
    PROCESSING_TIMEOUT: String(2 * HOUR_MS),
    MAX_ATTEMPTS: String(MAX_ATTEMPTS),
  });
  tasks = new TaskRepository(pool, environment);
}, START_TIMEOUT);

beforeEach(() => pool.query('delete from tasks'));

async function submitted(): Promise<string> {
  const [id = ''] = await tasks.insert([{ name: 'resize-photos', items: 1, msPerItem: 1, failures: 0 }]);
  return id;
}

/** Makes a task that a dispatcher has marked and not pushed, as if the dispatcher had died in between. */
async function enqueued(): Promise<string> {
  const id = await submitted();
  await tasks.markEnqueued([id]);
  return id;
}

/** Makes a task that a consumer has taken and not finished, as if the consumer had died during the work. */
async function taken(id?: string): Promise<TakenTask> {
  const task = await tasks.markProcessing(id ?? (await enqueued()));
  if (!task) throw new Error('the task could not be taken');
  return task;
}

async function done(): Promise<string> {
  const task = await taken();
  await tasks.markDone(task);
  return task.id;
}

/** Makes a task older: moves its `updated_at` into the past by `ms`. */
async function age(id: string, ms: number): Promise<void> {
  await pool.query(`update tasks set updated_at = updated_at - $2 * interval '1 millisecond' where id = $1`, [
    id,
    ms,
  ]);
}

async function statusOf(id: string): Promise<Task['status'] | undefined> {
  return (await tasks.find(id))?.status;
}

describe('returnNeverTaken', () => {
  test('returnNeverTaken returns an enqueued task to the dispatcher after the time limit of the task, and not before', async () => {
    const [lost, late, recent] = [await enqueued(), await enqueued(), await enqueued()];
    await age(lost, HOUR_MS + 1);
    await age(late, HOUR_MS / 2);

    await expect(tasks.returnNeverTaken()).resolves.toBe(1);

    await expect(tasks.readDispatchable(10)).resolves.toEqual([{ id: lost, dispatches: 1 }]);
    await expect(statusOf(late)).resolves.toBe('enqueued');
    await expect(statusOf(recent)).resolves.toBe('enqueued');
    // A task that is enqueued again has its whole time limit again.
    await tasks.markEnqueued([lost]);
    await expect(tasks.returnNeverTaken()).resolves.toBe(0);
  });

  test('returnNeverTaken invalidates the old job of a task that it returns to the dispatcher', async () => {
    const lost = await enqueued();
    await age(lost, HOUR_MS + 1);
    await tasks.returnNeverTaken();

    await expect(tasks.markProcessing(lost)).resolves.toBeUndefined();
  });

  test.each<[string, () => Promise<string>]>([
    ['waits for the dispatcher', submitted],
    ['is being processed', async () => (await taken()).id],
    ['is done', done],
  ])('returnNeverTaken does not change a task that %s, at any age', async (_what, make) => {
    const id = await make();
    const before = await statusOf(id);
    await age(id, 10 * HOUR_MS);

    await expect(tasks.returnNeverTaken()).resolves.toBe(0);

    await expect(statusOf(id)).resolves.toBe(before);
  });
});

describe('failAbandoned', () => {
  test('failAbandoned fails a task after its time limit and names the consumer, unless the consumer has sent a recent heartbeat', async () => {
    const [abandoned, slow, recent] = [await taken(), await taken(), await taken()];
    await age(abandoned.id, 2 * HOUR_MS + 1);
    await age(slow.id, 2 * HOUR_MS + 1);
    await tasks.heartbeat(slow);
    await age(recent.id, HOUR_MS + 1);

    await expect(tasks.failAbandoned()).resolves.toBe(1);

    await expect(tasks.find(abandoned.id)).resolves.toMatchObject({
      status: 'failed',
      attempts: 1,
      error: 'one died while processing',
    });
    await expect(tasks.readDispatchable(10)).resolves.toEqual([{ id: abandoned.id, dispatches: 1 }]);
    await expect(statusOf(slow.id)).resolves.toBe('processing');
    await expect(statusOf(recent.id)).resolves.toBe('processing');
  });

  test.each<[string, () => Promise<string>]>([
    ['waits for the dispatcher', submitted],
    ['waits for a consumer', enqueued],
    ['is done', done],
  ])('failAbandoned does not change a task that %s, at any age', async (_what, make) => {
    const id = await make();
    const before = await statusOf(id);
    await age(id, 10 * HOUR_MS);

    await expect(tasks.failAbandoned()).resolves.toBe(0);

    await expect(statusOf(id)).resolves.toBe(before);
  });

  test('failAbandoned marks an abandoned task as dead after the last attempt', async () => {
    const first = await taken();
    await tasks.markFailed(first, 'no luck');
    await tasks.markEnqueued([first.id]);
    const last = await taken(first.id);
    expect(last.attempt).toBe(MAX_ATTEMPTS);
    await age(last.id, 2 * HOUR_MS + 1);

    await expect(tasks.failAbandoned()).resolves.toBe(1);

    await expect(statusOf(last.id)).resolves.toBe('dead');
  });

  test('failAbandoned prevents the slow consumer of a failed task from changing that task later', async () => {
    const slow = await taken();
    await age(slow.id, 2 * HOUR_MS + 1);
    await tasks.failAbandoned();
    await tasks.markEnqueued([slow.id]);
    const again = await taken(slow.id);

    await tasks.markFailed(slow, 'too late');
    await tasks.markDone(slow);

    await expect(tasks.find(slow.id)).resolves.toMatchObject({ status: 'processing', error: null });
    await tasks.markDone(again);
    await expect(statusOf(slow.id)).resolves.toBe('done');
  });
});

describe('the sweep', () => {
  interface Sweeping {
    readonly sweeper: TaskSweeper;
    readonly locks: LockService;
    readonly lines: LogLines;
    close(): Promise<void>;
  }

  /** Starts an instance that has only the sweep, without a timer. */
  async function sweeping(): Promise<Sweeping> {
    const lines = new LogLines('TaskSweeper');
    const app = await startApp(
      { providers: [TaskSweeper, { provide: TaskRepository, useValue: tasks }] },
      { nodes: redisUrl, defaults: { ttl: 60_000 } },
      { logger: lines },
    );
    return {
      sweeper: app.get(TaskSweeper),
      locks: app.get(LockService),
      lines,
      close: () => app.close(),
    };
  }

  test('the sweep makes an enqueued task pending again, marks an abandoned task as failed, and logs how many there were', async () => {
    const { sweeper, lines, close } = await sweeping();
    const [lost, abandoned] = [await enqueued(), (await taken()).id];
    await age(lost, HOUR_MS + 1);
    await age(abandoned, 2 * HOUR_MS + 1);

    await sweeper.sweep();

    await expect(statusOf(lost)).resolves.toBe('pending');
    await expect(statusOf(abandoned)).resolves.toBe('failed');
    expect(lines.of('warn')).toEqual([
      '1 tasks were enqueued and never taken',
      '1 tasks were abandoned while being processed',
    ]);
    await sweeper.sweep();
    expect(lines.of('warn')).toHaveLength(2);
    await close();
  });

  test('while one instance runs the sweep, a second instance skips its own sweep', async () => {
    const [one, two] = [await sweeping(), await sweeping()];
    const lost = await enqueued();
    await age(lost, HOUR_MS + 1);
    // A sweep waits for the end of this transaction.
    const other = await pool.connect();
    await other.query('begin');
    await other.query('select from tasks where id = $1 for update', [lost]);
    const first = one.sweeper.sweep();
    await until(async () => (await waitingStatements()) === 1);

    const second = two.sweeper.sweep();

    // Without a lock, the second sweep would also wait for the transaction.
    await Promise.race([second, until(async () => (await waitingStatements()) === 2)]);
    const waiting = await waitingStatements();
    await other.query('commit');
    other.release();
    await Promise.all([first, second]);
    expect(waiting).toBe(1);
    await expect(statusOf(lost)).resolves.toBe('pending');
    // All applications of a process share the logger of Nest, so the line may be in `lines` of either instance.
    expect([...one.lines.of('warn'), ...two.lines.of('warn')]).toHaveLength(1);
    await Promise.all([one.close(), two.close()]);
  });

  test('the sweep has its own lock, and does not wait for the dispatcher', async () => {
    const { sweeper, locks, close } = await sweeping();
    const lost = await enqueued();
    await age(lost, HOUR_MS + 1);
    const dispatching = await locks.acquire('batch:task:list');

    await sweeper.sweep();

    await expect(statusOf(lost)).resolves.toBe('pending');
    await dispatching.release();
    await close();
  });

  /** Counts the statements that wait for a row which another transaction has locked. */
  async function waitingStatements(): Promise<number> {
    const { rows } = await pool.query(
      `select from pg_stat_activity where wait_event_type = 'Lock' and query like 'update tasks%'`,
    );
    return rows.length;
  }
});
