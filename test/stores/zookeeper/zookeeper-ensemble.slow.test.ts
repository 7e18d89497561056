import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { ANY_VERSION, create, exists, setData } from '../../../lib/stores/zookeeper/client/requests.js';
import { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { ZooKeeperStore } from '../../../lib/stores/zookeeper/zookeeper-store.js';
import { contend } from '../../faults/contend.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, type ZooKeeperServer, zooKeeperServers } from '../../support/zookeeper-server.js';
import { contentionFor, LEAST } from './contention.js';
import { holdersIn } from './holders-in.js';

// An ensemble of three servers. `npm run test:faults` runs longer, and with more faults.

const LONG = process.env['FAULTS'] === 'long';
const LIMIT = 60_000;
const NOTHING = Buffer.alloc(0);

(hasZooKeeper() ? describe : describe.skip)('an ensemble of three ZooKeeper servers', () => {
  let servers: ZooKeeperServer[];

  beforeAll(async () => {
    servers = await zooKeeperServers(3, { properties: { 'readonlymode.enabled': 'true' } });
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  /** Starts the servers that do not run, and waits until one leads the others. */
  async function leader(): Promise<ZooKeeperServer> {
    await Promise.all(servers.map((server) => server.start()));
    let found: ZooKeeperServer | undefined;
    await until(async () => {
      const roles = await Promise.all(servers.map((server) => server.role()));
      found = servers[roles.indexOf('leader')];
      return found !== undefined;
    });
    return found!;
  }

  test('a client uses no server that is read-only, keeps its session over a change of the leader, and goes on without one server', async () => {
    const [first, ...others] = servers as [ZooKeeperServer, ZooKeeperServer, ZooKeeperServer];
    // Alone, a server without a majority serves reads.
    await first.start(/^read-only$/);
    const ready: boolean[] = [];
    const client = new ZooKeeperClient(
      { connectionString: servers.map(({ address }) => address).join(',') },
      { ready: (isNew) => ready.push(isNew), lost: () => undefined, watch: () => undefined },
    );
    cleanUpAfterTests(() => client.close(1_000));
    await expect(client.open()).rejects.toThrow(/a connection to a majority of the servers/);
    expect(client.available).toBe(false);
    await Promise.all(others.map((server) => server.start()));
    await until(() => client.available);
    await client.ask(create('/place', NOTHING, { access: 'world', isEphemeral: true }), LIMIT);
    await (await leader()).kill();
    await until(async () =>
      client.ask(setData('/place', NOTHING, ANY_VERSION), 2_000).then(
        () => true,
        () => false,
      ),
    );
    expect((await client.ask(exists('/place'), LIMIT)).ephemeralOwner).not.toBe(0n);
    expect(ready[0]).toBe(true);
    expect(ready.slice(1)).not.toContain(true);
    await client.close(1_000);
  }, 300_000);

  const faults: readonly (readonly [string, (ways: readonly TcpProxy[]) => Promise<unknown>])[] = [
    [
      'the leader is killed and restarted',
      async () => {
        const first = await leader();
        await first.kill();
        await delay(1_500);
        await first.start();
      },
    ],
    [
      'the leader stands still for longer than a ttl',
      async () => {
        const first = await leader();
        await first.pause();
        await delay(5_000);
        first.resume();
      },
    ],
    [
      'a random server cannot be reached for a while',
      async (ways) => {
        const way = ways[Math.floor(Math.random() * ways.length)];
        way?.blackHole();
        await delay(4_000);
        await way?.heal();
      },
    ],
    [
      'two of the servers stand still, so that no majority is left',
      async () => {
        const paused = servers.slice(1);
        for (const server of paused) await server.pause();
        await delay(4_000);
        for (const server of paused) server.resume();
      },
    ],
  ];

  test.each(LONG ? faults : faults.slice(0, 1))(
    'no two contenders hold a lock together, and tokens grow, when %s',
    async (_, fault) => {
      await leader();
      const duration = LONG ? 30_000 : 6_500;
      const ways = await Promise.all(servers.map((server) => startTcpProxy(server)));
      const processes = await Promise.all(
        ways.map(async (way): Promise<Redlock> => {
          // Each process begins at another server.
          const order = [way, ...ways.filter((other) => other !== way)];
          const connectionString = order.map(({ host, port }) => `${host}:${port}`).join(',');
          const store = new ZooKeeperStore({ connectionString }, newTerms());
          cleanUpAfterTests(() => store.close());
          await store.connect();
          return redlockOver([store], PATIENT);
        }),
      );
      const verdict = await contend(processes, contentionFor(duration), async () => {
        for (const end = performance.now() + duration - 5_000; performance.now() < end;) {
          await delay(1_000);
          await fault(ways);
        }
      });
      const { overlaps, tokenFaults, late, acquisitions } = verdict;
      expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
      expect(acquisitions).toBeGreaterThan(LEAST);
      await leader();
      const witness = new ZooKeeperStore({ connectionString: servers[0]!.address }, newTerms());
      cleanUpAfterTests(() => witness.close());
      await witness.connect();
      await until(async () => (await holdersIn(witness)).size === 0);
      await Promise.all(processes.map((redlock) => redlock.close()));
      await Promise.all(ways.map((way) => way.close()));
    },
    300_000,
  );
});
