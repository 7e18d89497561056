import type { StoreContext } from '../stores/redis/store-context.js';
import { RedisStore } from '../stores/redis/redis-store.js';
import type { Store } from '../core/ports.js';
import { openNodes } from './node-url.js';
import type { Target } from './target.js';

/**
 * Opens the Redis nodes of a target to look at their locks, without connecting them.
 *
 * @throws UsageError
 */
export function openRedisStores(target: Target): readonly Store[] {
  const context: StoreContext = {
    keyPrefix: target.keyPrefix,
    // The restart guard writes a marker to each node, and a command that reads locks must not change the nodes.
    guarded: false,
    several: false,
    names: new Set(),
    runIds: new Map(),
    // `doctor` prints these warnings.
    warnOnce: () => undefined,
  };
  return openNodes(target).map((client) => new RedisStore(client, true, context));
}
