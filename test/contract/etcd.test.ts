import { describe } from '@jest/globals';
import { hasEtcd } from '../support/etcd-server.js';
import { etcdBackend } from './etcd-backend.js';
import { lockContract } from './lock-contract.js';

(hasEtcd() ? describe : describe.skip)('on a real etcd', () => {
  lockContract('etcd', etcdBackend, undefined, { lapse: 2_000 });
});
