import { beforeAll, expect, jest, test } from '@jest/globals';
import { startPostgres } from '../../sample-app/demo/embedded-postgres.js';
import type { Lab } from '../../lab/lab.js';
import type { LabInstance, LabServices, Stage } from '../../lab/stage.js';
import { until } from '../support/until.js';
import { START_TIMEOUT, stopList } from '../sample-app/services.js';

const stops = stopList();
let lab: Lab;
let playground: Parameters<Lab['run']>[0];

/** The compiled lab, because its instances are processes that run what lies beside it. */
async function compiled<T>(name: string): Promise<T> {
  return (await import(new URL(`../../dist/lab/${name}.js`, import.meta.url).href)) as T;
}

beforeAll(async () => {
  const { Lab: CompiledLab } = await compiled<typeof import('../../lab/lab.js')>('lab');
  const { InstancePool } = await compiled<typeof import('../../lab/instance-pool.js')>('instance-pool');
  const { RedisNode } = await compiled<typeof import('../../lab/redis-node.js')>('redis-node');
  const { findRedis } = await compiled<typeof import('../../lab/redis-kind.js')>('redis-kind');
  const { PLAYGROUND } = await compiled<typeof import('../../lab/scenarios.js')>('scenarios');
  playground = PLAYGROUND;
  const redis = await findRedis();
  const services: LabServices = {
    redis,
    databaseUrl: await startPostgres(stops),
    queue: await RedisNode.start('queue', redis, stops),
    pool: new InstancePool(stops),
  };
  lab = new CompiledLab(stops);
  lab.services = services;
}, START_TIMEOUT);

test('tasks keep coming when instances are killed and paused in the middle of taking some', async () => {
  const ended = lab.run(playground);
  ended.catch(() => undefined);
  await until(() => lab.stage?.instances.length === 3);
  const stage = lab.stage as Stage;
  const { events } = stage.recorder.record;
  const submitted = (): number => events.filter(({ kind }) => kind === 'submitted').length;

  for (const fault of ['kill', 'pause'] as const) {
    await until(() => submitted() > 0);
    const instance = stage.serving as LabInstance;
    // From here on the instance cannot answer a customer.
    instance.toDatabase.holdRequests();
    const submit = jest.spyOn(stage, 'submit');
    await until(() => submit.mock.calls.length > 0);
    await stage[fault](instance);
    submit.mockRestore();

    const before = submitted();
    await until(() => submitted() > before + 2);
    expect(events).toContainEqual(
      expect.objectContaining({ text: `${instance.name} had no time to answer; it may have taken 2 tasks` }),
    );
  }

  lab.stop();
  await expect(ended).resolves.toMatchObject([{ deviations: [], endedAt: expect.any(Number) }]);
});
