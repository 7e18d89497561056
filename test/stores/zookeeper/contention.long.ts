import { describe } from '@jest/globals';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { ZooKeeperStore } from '../../../lib/stores/zookeeper/zookeeper-store.js';
import { redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, startZooKeeper } from '../../support/zookeeper-server.js';
import { type ContendedServer, contentionContract, contentionFor } from '../contention-contract.js';
import { holdersIn } from './holders-in.js';

async function start(): Promise<ContendedServer> {
  const server = await startZooKeeper();
  const proxy = await startTcpProxy(server);
  const witness = new ZooKeeperStore({ connectionString: server.address }, newTerms());
  await witness.connect();
  return {
    terms: contentionFor(10_000),
    async open(): Promise<Redlock> {
      const store = new ZooKeeperStore({ connectionString: `${proxy.host}:${proxy.port}` }, newTerms());
      await store.connect();
      return redlockOver([store], PATIENT);
    },
    restart: () => server.restart(),
    pause: () => server.pause(),
    resume: () => server.resume(),
    cut: async () => proxy.cut(),
    async forget() {
      for (const [key, ids] of await holdersIn(witness)) await witness.forceRelease(key, ids);
    },
    async orphans() {
      // The witness may not have connected again yet.
      await until(async () => (await holdersIn(witness).catch(() => undefined))?.size === 0);
      return [];
    },
    async stop() {
      await witness.close();
      await proxy.close();
      await server.stop();
    },
  };
}

(hasZooKeeper() ? describe : describe.skip)('on a real ZooKeeper', () => {
  contentionContract('ZooKeeper', { start, processes: 3, least: 20, times: 1, pause: 3_000 });
});
