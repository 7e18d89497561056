import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Buffer } from 'node:buffer';
import { ANY_VERSION, create, exists, setData } from '../../../lib/stores/zookeeper/client/requests.js';
import { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, type ZooKeeperServer, zooKeeperServers } from '../../support/zookeeper-server.js';

const LIMIT = 60_000;
const NOTHING = Buffer.alloc(0);

(hasZooKeeper() ? describe : describe.skip)('a client of an ensemble of ZooKeeper servers', () => {
  let servers: ZooKeeperServer[];

  beforeAll(async () => {
    servers = await zooKeeperServers(3, { properties: { 'readonlymode.enabled': 'true' } });
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  test('uses no server that is read-only, keeps its session over a change of the leader, and goes on without one server', async () => {
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
    const roles = await Promise.all(servers.map((server) => server.role()));
    const leader = servers[roles.indexOf('leader')]!;
    await leader.kill();
    await until(async () =>
      client.ask(setData('/place', NOTHING, ANY_VERSION), 2_000).then(
        () => true,
        () => false,
      ),
    );
    expect((await client.ask(exists('/place'), LIMIT)).ephemeralOwner).not.toBe(0n);
    expect(ready[0]).toBe(true);
    expect(ready.slice(1)).not.toContain(true);
  }, 300_000);
});
