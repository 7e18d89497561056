import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

lockContract('three Redis', () => redisBackend(3));

inspectionContract('one Redis', () => redisBackend(1), { allModes: true });
inspectionContract('three Redis', () => redisBackend(3), { allModes: true });
