import { ZooKeeperStore } from '../../lib/stores/zookeeper/zookeeper-store.js';
import { newTerms } from '../support/postgres-store.js';
import { startZooKeeper } from '../support/zookeeper-server.js';
import { holdersIn } from '../stores/zookeeper/holders-in.js';
import type { Backend } from './lock-contract.js';

/** A real ZooKeeper. */
export async function zooKeeperBackend(): Promise<Backend> {
  const server = await startZooKeeper();
  const open = async (): Promise<ZooKeeperStore> => {
    const store = new ZooKeeperStore({ connectionString: server.address }, newTerms());
    await store.connect();
    return store;
  };
  const witness = await open();
  return {
    nodes: async () => [await open()],
    countKeys: async () => (await holdersIn(witness)).size,
    async stop() {
      await witness.close();
      await server.stop();
    },
  };
}
