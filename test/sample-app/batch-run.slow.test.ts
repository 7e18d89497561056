import { beforeAll, describe, expect, test } from '@jest/globals';
import { type BatchResult, type BatchRunOptions, runBatch } from '../../sample-app/demo/batch-run.js';
import type { NewTask } from '../../sample-app/tasks/create-tasks.schema.js';
import { MAIN, START_TIMEOUT, startServices, stopList } from './services.js';

const TASKS = 240;
const ALWAYS_FAILING = 6;
const RUN_TIMEOUT = 300_000;
const LONG = process.env['FAULTS'] === 'long';
/** Stores of the locks of the run with a killed instance. */
const STORES: readonly ('redis' | 'postgres')[] = LONG ? ['redis', 'postgres'] : ['redis'];

/** Most tasks succeed at once, some succeed after one or two failures, and every fortieth task always fails. */
const tasks: NewTask[] = Array.from({ length: TASKS }, (_, index) => ({
  name: `task-${index}`,
  items: 1 + (index % 7),
  msPerItem: 1 + (index % 20),
  failures: index % 40 === 0 ? 'always' : index % 9 === 0 ? 1 + (index % 2) : 0,
}));

describe('several instances in separate processes', () => {
  const stops = stopList();
  let services: { databaseUrl: string; redisUrl: string };

  beforeAll(async () => {
    services = await startServices();
  }, START_TIMEOUT);

  function run(
    options: Pick<BatchRunOptions, 'dispatcher' | 'instances' | 'killOne'> & Partial<BatchRunOptions>,
  ): Promise<BatchResult> {
    const { databaseUrl, redisUrl } = services;
    return runBatch(
      {
        etcdUrls: ['http://127.0.0.1:2379'],
        mysqlUrl: 'mysql://127.0.0.1:3306/locks',
        zooKeeperServers: '127.0.0.1:2181',
        main: MAIN,
        store: 'redis',
        databaseUrl,
        redisUrls: [redisUrl],
        tasks,
        log: () => undefined,
        ...options,
      },
      stops,
    );
  }

  if (LONG)
    test(
      'instances with the lock share the work and push no task twice',
      async () => {
        const result = await run({ dispatcher: 'locked', instances: 2, killOne: false });

        expect(result).toMatchObject({
          duplicatePushes: 0,
          refused: 0,
          lost: 0,
          done: TASKS - ALWAYS_FAILING,
          dead: ALWAYS_FAILING,
        });
        expect(result.instances).toHaveLength(2);
      },
      RUN_TIMEOUT,
    );

  // The instances share the work here, too, so the short form plays no run without a killed instance.
  test.each(STORES)(
    'no task is pushed twice or lost when one instance is killed, with locks in %s',
    async (store) => {
      const result = await run({ dispatcher: 'locked', instances: 3, killOne: true, store });

      expect(result).toMatchObject({
        duplicatePushes: 0,
        refused: 0,
        lost: 0,
        done: TASKS - ALWAYS_FAILING,
        dead: ALWAYS_FAILING,
      });
      expect(result.instances.filter(({ killed }) => killed)).toHaveLength(1);
    },
    RUN_TIMEOUT,
  );

  // This control shows that the tests above would find duplicates.
  test(
    'instances without the lock push tasks twice (control)',
    async () => {
      // An instance that is late by chance finds nothing to push, so a run may have no duplicates.
      let result = await run({ dispatcher: 'unlocked', instances: 2, killOne: false });
      for (let more = 0; more < 4 && result.duplicatePushes === 0; more++) {
        result = await run({ dispatcher: 'unlocked', instances: 2, killOne: false });
      }

      expect(result.duplicatePushes).toBeGreaterThan(0);
      expect(result.pushes).toBeGreaterThan(TASKS);
    },
    5 * RUN_TIMEOUT,
  );
});
