import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

// A single node and a quorum with a failed node differ most: redis.slow.test.ts has the number of nodes between them.

lockContract('one Redis', () => redisBackend(1));
lockContract('three Redis, one of them down', () => redisBackend(3, 1));

inspectionContract('three Redis, one of them down', () => redisBackend(3, 1), { allModes: true, down: 1 });
