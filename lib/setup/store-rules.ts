import type { Store } from '../core/ports.js';
import { isFactory, isStore } from './check-node.js';
import type { StoreFactory } from '../core/store-factory.js';
import type { RedlockModuleOptions } from './redlock.options.js';
import { isClient } from '../stores/redis/driver-for.js';
import { whyNotInCluster } from '../stores/redis/lock-key.js';

/** The members of a store that say which locks it can keep. */
type Rules = Partial<Pick<Store, 'name' | 'modes' | 'ttls' | 'refuses'>>;

/**
 * Gives a node of a test the rules of the store that it replaces, so that a call that the store always refuses fails in
 * the test, too.
 *
 * @param options - the options of the module under test. None of its nodes is connected
 */
export function withRulesOf({ nodes, keyPrefix = 'lock:' }: RedlockModuleOptions, node: Store): Store {
  const replaced: readonly unknown[] = Array.isArray(nodes) ? nodes : [nodes];
  const rules: Rules = Object.assign({}, ...replaced.map((each) => rulesOf(each, keyPrefix)));
  return new Proxy(node, {
    get: (target, name) => {
      if (Object.hasOwn(rules, name)) return rules[name as keyof Rules];
      const value = target[name as keyof Store] as unknown;
      // A private member of the node is not visible through the proxy.
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

function rulesOf(node: unknown, keyPrefix: string): Rules {
  if (typeof node !== 'object' || node === null) return {};
  if (isClient(node)) {
    const isCluster = 'masters' in node || ('isCluster' in node && node.isCluster === true);
    return isCluster ? { refuses: (keys) => whyNotInCluster(keyPrefix, keys) } : {};
  }
  const store = isStore(node) ? node : isFactory(node) ? unconnected(node, keyPrefix) : undefined;
  if (!store) return {};
  const { name, modes, ttls } = store;
  return {
    ...{ name, modes },
    ...(ttls && { ttls }),
    ...(store.refuses && { refuses: (keys, mode) => store.refuses?.(keys, mode) }),
  };
}

/** Makes the store of a factory. `undefined` if it needs something that a test does not have, such as a setting. */
function unconnected(factory: StoreFactory, keyPrefix: string): Store | undefined {
  const ignore = (): void => undefined;
  try {
    return factory.openStore({ keyPrefix, warnOnce: ignore, lost: ignore, ready: ignore });
  } catch {
    return undefined;
  }
}
