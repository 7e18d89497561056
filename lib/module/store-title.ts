import type { LockStore } from '../core/ports.js';
import { isFactory, isStore } from './check-node.js';
import type { RedlockModuleOptions } from './redlock.options.js';

/** Names of a store in the log. */
export interface StoreTitle {
  /** Singular. */
  readonly of: (store: LockStore) => string;
  readonly ofAll: string;
}

const REDIS: StoreTitle = { of: ({ name }) => `Redis at ${name}`, ofAll: 'Redis nodes' };

/** A store of another kind says itself what it is. */
const OTHERS: StoreTitle = { of: ({ name }) => name, ofAll: 'nodes' };

export function titleIn({ nodes }: RedlockModuleOptions): StoreTitle {
  const all: readonly unknown[] = Array.isArray(nodes) ? nodes : [nodes];
  return all.some((node) => isStore(node) || isFactory(node)) ? OTHERS : REDIS;
}
