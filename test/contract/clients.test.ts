import { EXCLUSIVE } from '../../lib/core/lock-mode.js';
import { CLIENTS } from '../support/clients.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

// These tests pass in a client of each kind. The other tests of this folder let the library open clients of ioredis 5.

for (const [name, make] of Object.entries(CLIENTS)) {
  const quick = name !== 'node-redis 6';
  lockContract(`one Redis over ${name}`, () => redisBackend(1, 0, make), EXCLUSIVE, { quick });
}

const three = () => redisBackend(3, 0, CLIENTS['node-redis 6']);
lockContract('three Redis over node-redis 6', three, EXCLUSIVE, { quick: true });
