import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../../lib/core/lease.js';
import type { StoreTerms } from '../../../lib/core/store-factory.js';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import {
  ANY_VERSION,
  create,
  exists,
  multi,
  type Request,
  setData,
  sync,
} from '../../../lib/stores/zookeeper/client/requests.js';
import { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { Refusal, ZooKeeperError } from '../../../lib/stores/zookeeper/client/zookeeper-error.js';
import { ZooKeeperStore } from '../../../lib/stores/zookeeper/zookeeper-store.js';
import { contend } from '../../faults/contend.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, type ZooKeeperServer, zooKeeperServers } from '../../support/zookeeper-server.js';
import { contentionFor } from '../contention-contract.js';
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

  function newClient(to: readonly { readonly host: string; readonly port: number }[]): ZooKeeperClient {
    const client = new ZooKeeperClient(
      { connectionString: to.map(({ host, port }) => `${host}:${port}`).join(',') },
      { ready: () => undefined, lost: () => undefined, watch: () => undefined },
    );
    cleanUpAfterTests(() => client.close(1_000));
    return client;
  }

  async function openStore(connectionString: string, terms?: Partial<StoreTerms>): Promise<ZooKeeperStore> {
    const store = new ZooKeeperStore({ connectionString }, { ...newTerms(), ...terms });
    cleanUpAfterTests(() => store.close());
    await store.connect();
    return store;
  }

  test('a client uses no server that is read-only, keeps its session over a change of the leader, and goes on without one server', async () => {
    const [first, ...others] = servers as [ZooKeeperServer, ZooKeeperServer, ZooKeeperServer];
    // Alone, a server without a majority serves reads.
    await first.start(/^read-only$/);
    const client = newClient(servers);
    await expect(client.open()).rejects.toThrow(/whether it is connected to a majority of servers/);
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
    // This ends the present session. If it were another session, the node would stay for the time-out of the first one.
    await client.close(LIMIT);
    const next = newClient(servers);
    await next.open();
    await expect(next.ask(exists('/place'), LIMIT)).rejects.toMatchObject({ code: Refusal.noNode });
  }, 300_000);

  /** Sends the next transaction of any client through `other`, and lets its answer be lost. */
  function sendNextThrough(other: ZooKeeperClient): void {
    const { ask } = ZooKeeperClient.prototype;
    const spy = jest.spyOn(ZooKeeperClient.prototype, 'ask');
    spy.mockImplementation(async function send<Reply>(
      this: ZooKeeperClient,
      request: Request<Reply>,
      limit: number,
    ): Promise<Reply> {
      if (request.op !== multi([]).op) return ask.call(this, request, limit) as Promise<Reply>;
      spy.mockRestore();
      await other.ask(request, limit);
      throw new ZooKeeperError('the connection was cut', false);
    });
  }

  // The server of the other process shows a released lock for some time, and does not know a new one yet.
  test('a server that lags behind refuses no caller that tries once, and hides no lock or waiter', async () => {
    const first = await leader();
    const follower = servers.find((server) => server !== first)!;
    const way = await startTcpProxy({ port: first.quorumPort });
    await follower.kill();
    follower.follow(first, way.port);
    await follower.start();
    expect(way.connectionCount).toBe(1);
    const [near, far] = [await openStore(first.address), await openStore(follower.address)];
    const command = await openStore(follower.address, { looksOnly: true });
    const [freed, held] = [new Lease(['freed'], 'me', LIMIT), new Lease(['held'], 'me', LIMIT)];
    await acquireOn(near, freed);
    const other = new Lease(['freed'], 'other', LIMIT);
    expect(await acquireOn(far, other)).toMatchObject({ granted: false });
    const key = 'waited for';
    await acquireOn(near, new Lease([key], 'me', LIMIT));
    const waits = (): Promise<unknown> =>
      acquireOn(far, new Lease([key], 'other', LIMIT), { ordered: true, position });
    const waiter = { keys: [key], mode: 'exclusive' as const, process: 'p', number: 1, owner: 'other' };
    const position = { waiter, waited: 0, next: undefined };
    expect(await acquireOn(far, new Lease([key], 'other', LIMIT))).toMatchObject({ granted: false });
    const side = newClient([first]);
    await side.open();
    way.delayReplies(700);
    sendNextThrough(side);
    await expect(waits()).rejects.toThrow('the connection was cut');
    await far.leave(waiter);
    expect(await near.waiting([key])).toEqual([[]]);
    await releaseOn(near, freed);
    expect(await acquireOn(far, other)).toMatchObject({ granted: true });
    await acquireOn(near, held);
    expect(
      await extendOn(
        far,
        Lease.copied(
          held,
          0,
          () => false,
          () => false,
        ),
        LIMIT,
      ),
    ).toBe(true);
    expect(await command.read(['held'])).toMatchObject([{ holders: [{ id: held.id }] }]);
    await releaseOn(near, held);
    const next = new Lease(['held'], 'me', LIMIT);
    await acquireOn(near, next);
    expect(await command.forceRelease('held', [next.id])).toEqual([next.id]);
    await way.close();
    follower.follow(first, first.quorumPort);
    await follower.restart();
  }, 300_000);

  test('a request that arrives over the old connection has no effect after the session has moved to another server', async () => {
    await leader();
    const ways = await Promise.all(servers.slice(0, 2).map((server) => startTcpProxy(server)));
    const [client, witness] = [newClient(ways), newClient(servers.slice(2))];
    await Promise.all([client.open(), witness.open()]);
    await witness.ask(create('/moved', NOTHING, { access: 'world' }), LIMIT);
    const old = ways.find(({ connectionCount }) => connectionCount > 0)!;
    old.holdRequests();
    const late = client.ask(setData('/moved', NOTHING, ANY_VERSION), LIMIT);
    await until(() => old.holdsRequests);
    old.refuse();
    old.cutWithLateRequests();
    await expect(late).rejects.toMatchObject({ certain: false });
    await until(() => client.available);
    await client.ask(setData('/moved', NOTHING, ANY_VERSION), LIMIT);
    await old.deliverLate();
    await witness.ask(sync('/moved'), LIMIT);
    expect((await witness.ask(exists('/moved'), LIMIT)).version).toBe(1);
    await client.ask(setData('/moved', NOTHING, ANY_VERSION), LIMIT);
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
          const order = [way, ...ways.filter((other) => other !== way)];
          const connectionString = order.map(({ host, port }) => `${host}:${port}`).join(',');
          return redlockOver([await openStore(connectionString)], PATIENT);
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
      // Low in the short run: holds may be long, and servers are down for half of the time. With four acquisitions one of
      // the two keys has had three holders.
      expect(acquisitions).toBeGreaterThan(LONG ? 20 : 4);
      await leader();
      const witness = await openStore(servers[0]!.address);
      await until(async () => (await holdersIn(witness)).size === 0);
      await Promise.all(processes.map((redlock) => redlock.close()));
      await Promise.all(ways.map((way) => way.close()));
    },
    300_000,
  );
});
