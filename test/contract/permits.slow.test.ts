import { lockContract } from './lock-contract.js';
import { memoryBackend } from './memory-backend.js';
import { redisBackend } from './redis-backend.js';

const ONE = { mode: 'permits', permits: 1 } as const;

lockContract('a node in memory', memoryBackend, ONE);
lockContract('one Redis', () => redisBackend(1), ONE);
