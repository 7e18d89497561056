import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

lockContract('three Redis', () => redisBackend(3), { mode: 'permits', permits: 1 });
