import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

lockContract('one Redis', () => redisBackend(1));
lockContract('three Redis', () => redisBackend(3));
lockContract('three Redis, one of them down', () => redisBackend(3, 1));

inspectionContract('one Redis', () => redisBackend(1), { allModes: true });
inspectionContract('three Redis', () => redisBackend(3), { allModes: true });
inspectionContract('three Redis, one of them down', () => redisBackend(3, 1), { allModes: true, down: 1 });
