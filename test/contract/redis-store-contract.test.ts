import { afterAll, beforeAll } from '@jest/globals';
import type { LockMode } from '../../lib/core/lock-mode.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { newFleet, nodesTo } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { storeContract } from 'nestjs-redlock/store';
import { sideBySide } from './side-by-side.js';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

let server: RedisServer;
let store: RedisStore;

beforeAll(async () => {
  server = await startRedis();
  // The `true` says that the store is one of several nodes: only such a node also stores a marker key.
  [store] = nodesTo([server.url], newFleet(false, true)) as [RedisStore];
  await store.connect();
});
afterAll(async () => {
  await store.close();
  await server.stop();
});

storeContract(sideBySide, 'Redis', { modes, store: () => store });
