import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import type { Backend } from './lock-contract.js';

/**
 * A store that the simulated processes of the contract share. Each process calls `close` at its end. That call must do
 * nothing, because the other processes still use the store.
 */
class SharedStore extends MemoryStore {
  override close(): Promise<void> {
    return Promise.resolve();
  }

  end(): Promise<void> {
    return super.close();
  }
}

export function memoryBackend(): Promise<Backend> {
  const node = new SharedStore();
  return Promise.resolve({
    nodes: () => Promise.resolve([node]),
    countKeys: () => Promise.resolve(node.size),
    stop: () => node.end(),
  });
}
