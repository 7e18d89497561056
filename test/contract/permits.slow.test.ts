import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

const ONE = { mode: 'permits', permits: 1 } as const;

/**
 * A store that the simulated processes of the contract share. Each process calls `close`. That call must do nothing,
 * because the other processes still use the store.
 */
class SharedStore extends MemoryStore {
  override close(): Promise<void> {
    return Promise.resolve();
  }
}

lockContract(
  'a node in memory',
  () => {
    const node = new SharedStore();
    return Promise.resolve({
      nodes: () => Promise.resolve([node]),
      countKeys: () => Promise.resolve(node.size),
      stop: () => Promise.resolve(),
    });
  },
  ONE,
);
lockContract('one Redis', () => redisBackend(1), ONE);
