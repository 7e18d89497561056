import { describe } from '@jest/globals';
import { hasZooKeeper } from '../support/zookeeper-server.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { zooKeeperBackend } from './zookeeper-backend.js';

(hasZooKeeper() ? describe : describe.skip)('on a real ZooKeeper', () => {
  lockContract('ZooKeeper', zooKeeperBackend);
  inspectionContract('ZooKeeper', zooKeeperBackend, { allModes: true });
});
