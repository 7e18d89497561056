import { EXCLUSIVE } from '../../lib/core/lock-mode.js';
import { CLIENTS } from '../support/clients.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

// Here the application gives the library its own client, one of each kind in `CLIENTS`. In the other tests with Redis in
// this folder the library itself opens clients of ioredis 5.

for (const [name, make] of Object.entries(CLIENTS)) {
  const quick = name !== 'node-redis 6';
  lockContract(`one Redis over ${name}`, () => redisBackend(1, 0, make), EXCLUSIVE, { quick });
}

for (const name of ['node-redis 6', 'Valkey GLIDE'] as const) {
  const three = () => redisBackend(3, 0, CLIENTS[name]);
  lockContract(`three Redis over ${name}`, three, EXCLUSIVE, { quick: true });
}
