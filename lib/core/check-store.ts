import { inspect } from 'node:util';
import { badValue, listed } from './checks.js';
import type { LockMode } from './lock-mode.js';
import type {
  LeaseExchange,
  LockDirectory,
  LockStore,
  QueueDirectory,
  QuorumStore,
  StarvationGuard,
  Store,
  StoreHealth,
  WaitQueue,
} from './ports.js';

/** The methods of each port. `checkStore` also checks properties that are no methods. */
const PORTS: Readonly<Record<string, readonly (keyof Store)[]>> = {
  LockStore: ['connect', 'acquire', 'extend', 'release', 'close'] satisfies (keyof LockStore)[],
  WaitQueue: ['listen', 'leave', 'contended'] satisfies (keyof WaitQueue)[],
  StarvationGuard: ['holdBack', 'letPass'] satisfies (keyof StarvationGuard)[],
  LockDirectory: ['read', 'scan', 'forceRelease'] satisfies (keyof LockDirectory)[],
  QueueDirectory: ['waiting'] satisfies (keyof QueueDirectory)[],
  QuorumStore: ['time', 'raise'] satisfies (keyof QuorumStore)[],
  LeaseExchange: ['exchange'] satisfies (keyof LeaseExchange)[],
  StoreHealth: ['check'] satisfies (keyof StoreHealth)[],
};

const MODES: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

/**
 * Checks that a store has all methods of `LockStore`, and of each other port either all methods or none. Otherwise a
 * store without one method of a port would pass start-up, and fail at the first lock that needs the method.
 *
 * @param what - the store's name in error messages
 * @throws TypeError naming the missing methods
 */
export function checkStore(store: unknown, what: string): asserts store is Store {
  if (typeof store !== 'object' || store === null) throw badValue(what, 'a store', store);
  const has = (name: string): boolean => typeof (store as Record<string, unknown>)[name] === 'function';
  for (const [port, methods] of Object.entries(PORTS)) {
    const missing = methods.filter((name) => !has(name));
    const isWanted = port === 'LockStore' || missing.length < methods.length;
    if (!isWanted || missing.length === 0) continue;
    const begun = port === 'LockStore' ? '' : `, which has ${listed(methods.filter(has))},`;
    throw new TypeError(
      `Expected ${what}${begun} to have all methods of \`${port}\`: it has no ${listed(missing)}. ` +
        `Add them; nestjs-redlock/store has the interface \`${port}\`, and tests for stores (\`storeContract\`)`,
    );
  }
  const { name, modes, available, refuses, subscribed, listen } = store as Store;
  if (typeof name !== 'string' || name === '')
    throw badValue(`\`name\` of ${what}`, 'a string that is not empty', name);
  if (!isModes(modes))
    throw badValue(
      `\`modes\` of ${what}`,
      `a list that contains 'exclusive', and otherwise only values of ${inspect(MODES)}`,
      modes,
    );
  if (typeof available !== 'boolean') throw badValue(`\`available\` of ${what}`, 'true or false', available);
  if (refuses !== undefined && typeof refuses !== 'function')
    throw badValue(`\`refuses\` of ${what}`, 'a function', refuses);
  if (listen && typeof subscribed !== 'boolean')
    throw badValue(`\`subscribed\` of ${what}`, 'true or false', subscribed);
}

function isModes(modes: unknown): boolean {
  const all: readonly unknown[] = Array.isArray(modes) ? modes : [];
  return all.includes('exclusive') && all.every((mode) => MODES.includes(mode as LockMode));
}
