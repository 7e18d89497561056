import { RedisStore } from '../stores/redis/redis-store.js';
import { openClient } from '../stores/redis/connection/connection.js';
import { driverFor, isClient } from '../stores/redis/driver-for.js';
import { MemoryStore } from '../stores/memory/memory-store.js';
import { checkStore } from '../core/check-store.js';
import type { StoreTerms } from '../core/store-factory.js';
import { isFactory, isStore } from './check-node.js';
import type { NodeLog } from './node-log.js';
import type { RedlockModuleOptions, RedlockNodeOption } from './redlock.options.js';
import type { StoreContext } from '../stores/redis/store-context.js';
import type { LockStore, Store } from '../core/ports.js';

/** Number of nodes in the options of a module. */
export function countNodes({ nodes }: RedlockModuleOptions): number {
  return isList(nodes) ? nodes.length : 1;
}

/** Makes the nodes of the checked options. */
export function openStores(
  { nodes }: RedlockModuleOptions,
  context: StoreContext,
  nodeLog: NodeLog,
): readonly Store[] {
  const all = isList(nodes) ? nodes : [nodes];
  return all.map((node) => {
    if (node === 'memory') {
      context.warnOnce(
        "nodes: 'memory' locks inside this process only. Give Redis nodes when several processes run.",
      );
      return new MemoryStore();
    }
    const store: Store = openNode(node, context, {
      lost: () => nodeLog.lost(store.name),
      ready: () => nodeLog.ready(store.name),
    });
    return store;
  });
}

/** Makes the store of one checked node, which is not `'memory'`. */
export function openNode(
  node: RedlockNodeOption,
  context: StoreContext,
  terms: Pick<StoreTerms, 'lost' | 'ready' | 'looksOnly'>,
): Store {
  if (isStore(node)) return node;
  if (isFactory(node)) {
    const { keyPrefix, warnOnce } = context;
    const store = node.openStore({ keyPrefix, warnOnce, ...terms });
    checkStore(store, 'the result of `openStore` in `nodes`');
    return store;
  }
  return typeof node === 'object' && isClient(node)
    ? new RedisStore(driverFor(node), false, context)
    : new RedisStore(openClient(node), true, context);
}

/** The words for a store in log messages. */
export interface StoreTitle {
  /** Singular. */
  readonly of: (store: LockStore) => string;
  readonly ofAll: string;
}

const REDIS: StoreTitle = { of: ({ name }) => `Redis at ${name}`, ofAll: 'Redis nodes' };

/** Stores of other kinds, whose names already contain their kind. */
const OTHERS: StoreTitle = { of: ({ name }) => name, ofAll: 'nodes' };

export function titleIn({ nodes }: RedlockModuleOptions): StoreTitle {
  const all = isList(nodes) ? nodes : [nodes];
  return all.some((node) => isStore(node) || isFactory(node)) ? OTHERS : REDIS;
}

function isList(nodes: RedlockModuleOptions['nodes']): nodes is readonly RedlockNodeOption[] {
  return Array.isArray(nodes);
}
