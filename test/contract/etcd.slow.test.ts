import { describe } from '@jest/globals';
import { hasEtcd } from '../support/etcd-server.js';
import { etcdBackend } from './etcd-backend.js';
import { inspectionContract } from './inspection-contract.js';

(hasEtcd() ? describe : describe.skip)('on a real etcd', () => {
  inspectionContract('etcd', etcdBackend, { allModes: true });
});
