import { afterAll, beforeAll, describe } from '@jest/globals';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { EtcdStore } from '../../lib/stores/etcd/etcd-store.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../support/etcd-server.js';
import { newTerms } from '../support/postgres-store.js';
import { storeContract } from '../../lib/stores/contract/store-contract.js';
import { sideBySide } from './side-by-side.js';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

(hasEtcd() ? describe : describe.skip)('on a real etcd', () => {
  let server: EtcdServer;
  let store: EtcdStore;

  beforeAll(async () => {
    server = await startEtcd();
    store = new EtcdStore({ endpoints: server.url }, newTerms());
    await store.connect();
  });
  afterAll(async () => {
    await store.close();
    await server.stop();
  });

  storeContract(sideBySide, 'etcd', {
    modes,
    store: () => store,
    shortestTtl: 1_000,
    mostPermits: 100,
  });
});
