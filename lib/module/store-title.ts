import type { LockStore } from '../core/ports.js';
import { isFactory, isStore } from './check-node.js';
import type { RedlockModuleOptions } from './redlock.options.js';

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
  const all: readonly unknown[] = Array.isArray(nodes) ? nodes : [nodes];
  return all.some((node) => isStore(node) || isFactory(node)) ? OTHERS : REDIS;
}
