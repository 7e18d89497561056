import { beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { Lab } from '../../lab/lab.js';
import type { LabEvent } from '../../lab/lab-event.js';
import type { LockServer } from '../../lab/lock-server.js';
import type { LabInstance, LabServices, Stage, StagePlan } from '../../lab/stage.js';
import { hasEtcd } from '../support/etcd-server.js';
import { hasMysql } from '../support/mysql-server.js';
import { hasZooKeeper } from '../support/zookeeper-server.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { until } from '../support/until.js';
import { START_TIMEOUT, stopList } from '../sample-app/services.js';

const stops = stopList();
let lab: Lab;
let playground: Parameters<Lab['run']>[0];

/** Imports a module of the compiled lab, whose instances are processes that run the compiled files beside it. */
async function compiled<T>(name: string): Promise<T> {
  return (await import(new URL(`../../dist/lab/${name}.js`, import.meta.url).href)) as T;
}

beforeAll(async () => {
  const { Lab: CompiledLab } = await compiled<typeof import('../../lab/lab.js')>('lab');
  const { InstancePool } = await compiled<typeof import('../../lab/instance-pool.js')>('instance-pool');
  const { RedisNode } = await compiled<typeof import('../../lab/redis-node.js')>('redis-node');
  const { findRedis } = await compiled<typeof import('../../lab/redis-kind.js')>('redis-kind');
  const { findStores } = await compiled<typeof import('../../lab/store-choices.js')>('store-choices');
  const { PLAYGROUND } = await compiled<typeof import('../../lab/scenarios.js')>('scenarios');
  playground = PLAYGROUND;
  const redis = await findRedis();
  const services: LabServices = {
    redis,
    databaseUrl: (await startPostgresServer()).url,
    queue: await RedisNode.start('queue', redis, stops),
    pool: new InstancePool(stops),
  };
  lab = new CompiledLab(stops, await findStores());
  lab.services = services;
}, START_TIMEOUT);

test('the playground continues to submit tasks after the instance that accepts them is killed or paused', async () => {
  const ended = lab.run(playground);
  ended.catch(() => undefined);
  await until(() => lab.stage?.instances.length === 3);
  const stage = lab.stage as Stage;
  const { events } = stage.recorder.record;
  const submitted = (): number => events.filter(({ kind }) => kind === 'submitted').length;

  for (const fault of ['kill', 'pause'] as const) {
    await until(() => submitted() > 0);
    const instance = stage.serving as LabInstance;
    // The instance cannot answer a customer without its database.
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

const LONG = process.env['FAULTS'] === 'long';
const STORES = [
  ['PostgreSQL', 'postgres'] as const,
  ...(hasMysql() ? [['MariaDB', 'mysql'] as const] : []),
  ...(hasEtcd() ? [['etcd', 'etcd'] as const] : []),
  ...(hasZooKeeper() ? [['ZooKeeper', 'zookeeper'] as const] : []),
];

if (LONG)
  describe.each(STORES)('locks of the playground in %s', (name, store) => {
    /** Runs the playground under the lock of this package until `situation` ends; returns the outcome. */
    async function play(
      settings: Partial<StagePlan>,
      situation: (stage: Stage, node: LockServer, events: readonly LabEvent[]) => Promise<void>,
    ) {
      const ended = lab.run(playground, { strategy: 'with-lock', store, nodes: 1, ...settings });
      try {
        await until(() => lab.stage?.instances.length === 3);
        const stage = lab.stage as Stage;
        expect(stage.nodes.map((node) => node.name)).toEqual([name]);
        await situation(stage, stage.nodes[0] as LockServer, stage.recorder.record.events);
      } finally {
        lab.stop();
        await ended.catch(() => undefined);
      }
      const [record] = await ended;
      return record?.outcome;
    }

    const has = (events: readonly LabEvent[], since: number, kind: LabEvent['kind'], who?: string): boolean =>
      events.slice(since).some((event) => event.kind === kind && (who === undefined || event.who === who));

    test('no two instances hold the lock at once when the store is killed or paused and instances restart', async () => {
      const outcome = await play(
        // The ttl is long, so that a holder does not lose its lock when its process stalls.
        { ttl: 6_000, work: 300 },
        async (stage, node, events) => {
          const [{ name: first }] = stage.instances as [LabInstance];
          const allPush = async (): Promise<void> => {
            const since = events.length;
            await until(() => has(events, since, 'pushed'));
            for (const instance of stage.instances)
              await until(() => has(events, since, 'acquired', instance.name));
          };
          const nobodyIsServed = async (): Promise<void> => {
            const [instance] = stage.instances as [LabInstance];
            await stage.kill(instance);
            await stage.revive(instance);
            // The killed process may have acquired the lock just now. All events of its name from here on come from the
            // new process.
            const since = events.length;
            expect(stage.instances[0]?.name).toBe(first);
            for (const each of stage.instances)
              await until(() => has(events, since, 'unavailable', each.name));
            expect(has(events, since, 'acquired', first)).toBe(false);
          };

          await allPush();
          await stage.killNode(node);
          await nobodyIsServed();
          await stage.startNode(node);
          await allPush();
          stage.pauseNode(node);
          await nobodyIsServed();
          stage.resumeNode(node);
          await allPush();

          expect(events.filter(({ who }) => who === name)).toMatchObject([
            { kind: 'node-killed' },
            { kind: 'node-started', empty: false },
            { kind: 'paused' },
            { kind: 'resumed' },
          ]);
        },
      );

      expect(outcome).toMatchObject({ duplicates: 0, overlaps: 0, grantedTwice: 0 });
      expect(outcome?.pushes).toBeGreaterThan(0);
    });

    test('locks are still held after the store was killed and restarted', async () => {
      const outcome = await play({ ttl: 60_000, work: 1_000 }, async (stage, node, events) => {
        const isRead = (event: LabEvent): boolean => event.kind === 'read' && event.tasks > 0;
        await until(() => events.some(isRead));
        const holder = stage.instances.find(({ name: each }) => each === events.findLast(isRead)?.who);
        if (!holder) throw new Error('nobody has read');
        // A paused holder can neither release its lock nor acquire another.
        stage.pause(holder);
        await stage.killNode(node);
        await stage.startNode(node);
        const since = events.length;
        for (const instance of stage.instances) {
          if (instance !== holder) await until(() => has(events, since, 'skipped', instance.name));
        }
        expect(has(events, since, 'acquired')).toBe(false);
        stage.resume(holder);
        await until(() => has(events, since, 'pushed', holder.name));
      });

      expect(outcome).toMatchObject({ duplicates: 0, overlaps: 0, grantedTwice: 0, refused: 0 });
    });
  });
