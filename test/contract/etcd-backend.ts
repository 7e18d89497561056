import { EtcdStore } from '../../lib/stores/etcd/etcd-store.js';
import { startEtcd } from '../support/etcd-server.js';
import { newTerms } from '../support/postgres-store.js';
import type { Backend } from './lock-contract.js';

/** A real etcd. */
export async function etcdBackend(): Promise<Backend> {
  const server = await startEtcd();
  return {
    async nodes() {
      const store = new EtcdStore({ endpoints: server.url }, newTerms());
      await store.connect();
      return [store];
    },
    countKeys: async () => (await server.holders()).length,
    stop: () => server.stop(),
  };
}
