import type { StoreTerms } from '../core/store-factory.js';
import { fanOut } from '../redlock/fan-out.js';
import { LockInspector } from '../redlock/inspect/lock-inspector.js';
import type { Store } from '../core/ports.js';
import type { Target } from './target.js';
import { factoryOf } from './targets.js';

/** Time limit for a node to connect, and then to answer, in milliseconds. */
export const NODE_LIMIT_MS = 2_000;

/** The connected nodes of a command, and the object that reads their locks. */
export interface Session {
  readonly inspection: LockInspector;
  readonly nodeCount: number;
  close(): Promise<void>;
}

/**
 * Connects the nodes of a target. An unreachable node is tried again in the background. Until it is connected, each
 * request to it fails with the reason why the node is not connected.
 *
 * @throws UsageError
 */
export async function openSession(target: Target): Promise<Session> {
  const nodes = await openStores(target);
  await fanOut(
    nodes,
    NODE_LIMIT_MS,
    (node) => node.connect(),
    () => false,
  );
  return {
    inspection: new LockInspector(nodes, { nodeTimeout: NODE_LIMIT_MS }, new Set()),
    nodeCount: nodes.length,
    async close() {
      await Promise.all(nodes.map((node) => node.close()));
    },
  };
}

async function openStores(target: Target): Promise<readonly Store[]> {
  const factory = await factoryOf(target);
  if (factory) return [factory.openStore(lookingTerms(target))];
  // Loaded on demand: a command for another store needs no ioredis.
  const { openRedisStores } = await import('./redis-stores.js');
  return openRedisStores(target);
}

/** The settings of a store that only looks at locks. */
export function lookingTerms({ keyPrefix }: Target): StoreTerms {
  return {
    keyPrefix,
    // `doctor` prints these warnings.
    warnOnce: () => undefined,
    lost: () => undefined,
    ready: () => undefined,
    looksOnly: true,
  };
}
