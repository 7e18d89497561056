import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { lockContract } from './lock-contract.js';
import { redisBackend } from './redis-backend.js';

const ONE = { mode: 'permits', permits: 1 } as const;

/** The contract's processes share it, and each of them closes what it was given. */
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
lockContract('three Redis', () => redisBackend(3), ONE);
