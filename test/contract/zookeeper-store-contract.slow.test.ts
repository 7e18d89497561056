import { afterAll, beforeAll, describe } from '@jest/globals';
import { storeContract } from '../../lib/stores/contract/store-contract.js';
import { ZooKeeperStore } from '../../lib/stores/zookeeper/zookeeper-store.js';
import { newTerms } from '../support/postgres-store.js';
import { hasZooKeeper, startZooKeeper, type ZooKeeperServer } from '../support/zookeeper-server.js';
import { sideBySide } from './side-by-side.js';

(hasZooKeeper() ? describe : describe.skip)('on a real ZooKeeper', () => {
  let server: ZooKeeperServer;
  let store: ZooKeeperStore;

  beforeAll(async () => {
    server = await startZooKeeper();
    store = new ZooKeeperStore({ connectionString: server.address }, newTerms());
    await store.connect();
  }, 180_000);
  afterAll(async () => {
    await store.close();
    await server.stop();
  });

  storeContract(sideBySide, 'ZooKeeper', {
    modes: ['exclusive', 'shared', 'permits'],
    store: () => store,
    shortestTtl: 1_000,
    mostPermits: 100,
  });
});
