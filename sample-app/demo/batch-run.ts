import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockStore } from '../config/environment.js';
import type { Stats } from '../stats/stats.controller.js';
import type { NewTask } from '../tasks/create-tasks.schema.js';
import { Instance } from './instance.js';
import { PushObserver } from './pushes.js';
import { createScratchSchema } from './scratch-schema.js';
import { StopList } from './stop-list.js';

/** Attempts of a task that fail before it is given up. */
export const MAX_ATTEMPTS = 4;
/**
 * Milliseconds after which a task counts as abandoned by its consumer. They are longer than the pauses of a busy machine.
 */
export const PROCESSING_TIMEOUT_MS = 8_000;
const TASKS_PER_REQUEST = 50;
const POLL_MS = 250;
/** Time limit of a run, in milliseconds. A task that is neither done nor dead at the end of the run is lost. */
const TIME_LIMIT_MS = 200_000;
/**
 * Time limit of the search for an instance that dispatches, in milliseconds. After this time any instance is killed
 * instead.
 */
const HUNT_LIMIT_MS = 5_000;

export interface BatchRunOptions {
  /** Path of the compiled sample. */
  readonly main: string;
  readonly dispatcher: 'locked' | 'unlocked';
  /** Store of the locks. */
  readonly store: LockStore;
  readonly databaseUrl: string;
  readonly redisUrls: readonly [string, ...string[]];
  readonly etcdUrls: readonly string[];
  readonly mysqlUrl: string;
  readonly zooKeeperServers: string;
  readonly instances: number;
  readonly tasks: readonly NewTask[];
  /** True to kill one instance with SIGKILL half-way, if possible during its dispatch. */
  readonly killOne: boolean;
  readonly log: (line: string) => void;
}

export interface BatchResult {
  readonly tasks: number;
  readonly pushes: number;
  readonly duplicatePushes: number;
  /** Number of jobs that consumers refused because their task was already taken. */
  readonly refused: number;
  readonly done: number;
  readonly dead: number;
  /** Number of tasks that are neither done nor dead at the end. */
  readonly lost: number;
  readonly instances: readonly { name: string; dispatches: number; skips: number; killed: boolean }[];
  readonly seconds: number;
}

/**
 * Starts instances, gives them tasks, waits until the tasks are done, and stops all processes.
 *
 * @param stops - the run ends early when this list is stopped
 */
export async function runBatch(options: BatchRunOptions, stops: StopList): Promise<BatchResult> {
  const own = new StopList();
  await stops.add(() => own.stopAll());
  try {
    return await run(options, own);
  } finally {
    await own.stopAll();
  }
}

async function run(options: BatchRunOptions, stops: StopList): Promise<BatchResult> {
  const { main, dispatcher, store, tasks, redisUrls, etcdUrls, mysqlUrl, zooKeeperServers, killOne, log } =
    options;
  const runName = `batch_demo_${dispatcher}_${randomBytes(4).toString('hex')}`;
  const databaseUrl = await createScratchSchema(options.databaseUrl, runName, stops);
  const observer = new PushObserver(redisUrls[0], runName);
  await stops.add(() => observer.close());

  const instances = await Promise.all(
    Array.from({ length: options.instances }, (_, index) =>
      Instance.start(
        main,
        {
          INSTANCE: `instance-${index + 1}`,
          DATABASE_URL: databaseUrl,
          REDIS_URLS: redisUrls.join(','),
          KEY_PREFIX: runName,
          DISPATCHER: dispatcher,
          LOCK_STORE: store,
          ETCD_URLS: etcdUrls.join(','),
          MYSQL_URL: mysqlUrl,
          ZOOKEEPER_SERVERS: zooKeeperServers,
          // In PostgreSQL the schema of the locks is removed with the tables of the run.
          LOCK_SCHEMA: runName,
          // A small value, so that one run of the demo needs several runs of the dispatcher.
          DISPATCH_BATCH: '40',
          MAX_ATTEMPTS: String(MAX_ATTEMPTS),
          // During this time several instances can read the same tasks, and the demo can kill the holder.
          DISPATCH_WORK: '100',
          // Longer than the pauses of a busy machine: tasks must not count as lost.
          ENQUEUED_TIMEOUT: '30000',
          PROCESSING_TIMEOUT: String(PROCESSING_TIMEOUT_MS),
        },
        stops,
      ),
    ),
  );

  log(`${instances.length} instances run; boards with their locks, until the run ends:`);
  for (const { url } of instances) log(`  ${url}/locks`);
  const start = Date.now();
  await submit(tasks, instances);
  log(`${tasks.length} tasks are submitted`);

  let killed: Instance | undefined;
  let stats = await statsOf(instances);
  let reported = '';
  while (finalCount(stats) < tasks.length && Date.now() - start < TIME_LIMIT_MS) {
    await sleep(POLL_MS);
    if (killOne && !killed && finalCount(stats) > tasks.length / 3) {
      killed = await killDispatching(instances, log);
    }
    stats = await statsOf(instances);
    const progress = Object.entries(stats.tasks)
      .map(([status, count]) => `${status} ${count}`)
      .join('  ');
    const second = `${Math.round((Date.now() - start) / 1_000)} s`;
    if (second !== reported) log(`${second.padStart(5)}  ${progress}`);
    reported = second;
  }
  const seconds = (Date.now() - start) / 1_000;

  stats = await whenQuiet(observer, instances);
  const { pushes, duplicates } = await observer.count();
  const { done, dead } = stats.tasks;
  return {
    tasks: tasks.length,
    pushes,
    duplicatePushes: duplicates,
    refused: stats.instances.reduce((sum, { refused }) => sum + refused, 0),
    done,
    dead,
    lost: tasks.length - done - dead,
    instances: stats.instances.map(({ name, dispatches, skips }) => ({
      name,
      dispatches,
      skips,
      killed: name === killed?.name,
    })),
    seconds,
  };
}

/** Sends the tasks in several requests, to each instance in turn, as a load balancer does. */
async function submit(tasks: readonly NewTask[], instances: readonly Instance[]): Promise<void> {
  for (let first = 0, turn = 0; first < tasks.length; first += TASKS_PER_REQUEST, turn++) {
    await instances[turn % instances.length]?.submit(tasks.slice(first, first + TASKS_PER_REQUEST));
  }
}

function statsOf(instances: readonly Instance[]): Promise<Stats> {
  const alive = instances.find(({ process }) => process.running);
  if (!alive) throw new Error(`No instance is left. The last one said:\n${instances.at(-1)?.process.output}`);
  return alive.stats();
}

function finalCount({ tasks }: Stats): number {
  return tasks.done + tasks.dead;
}

/** Kills the instance that dispatches, which holds the lock. */
async function killDispatching(
  instances: readonly Instance[],
  log: (line: string) => void,
): Promise<Instance> {
  const deadline = Date.now() + HUNT_LIMIT_MS;
  let active: Instance | undefined;
  while (!active && Date.now() < deadline) {
    const { instances: activities } = await statsOf(instances);
    const activity = activities.find(({ dispatchingSince }) => dispatchingSince !== null);
    active = instances.find(({ name }) => name === activity?.name);
  }
  const victim = active ?? instances.at(-1);
  if (!victim) throw new Error('There is no instance to kill');
  await victim.process.kill();
  log(`${victim.name} is killed (SIGKILL)${active ? ' while dispatching: its lock ends with its ttl' : ''}`);
  return victim;
}

/** Returns the statistics after consumers have taken and refused the duplicates that follow the last tasks. */
async function whenQuiet(observer: PushObserver, instances: readonly Instance[]): Promise<Stats> {
  while ((await observer.waiting()) > 0) await sleep(POLL_MS);
  await sleep(2 * POLL_MS);
  return statsOf(instances);
}
