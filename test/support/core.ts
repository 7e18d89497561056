import type { Redis } from 'ioredis';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import type { StoreContext } from '../../lib/stores/redis/store-context.js';
import { ownerOf } from '../../lib/stores/redis/lock-value.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import type { LockStore } from '../../lib/core/ports.js';
import { Redlock } from '../../lib/redlock/redlock.js';
import { RestartGuard } from '../../lib/redlock/restart-guard.js';

// The parts below the Nest module, put together as tests need them.

export interface CoreOptions {
  readonly owner?: string;
  /** Milliseconds; derived from the ttl by default. */
  readonly nodeTimeout?: number;
  /** Milliseconds; no guard by default. */
  readonly guard?: number;
}

export function redlockOver(
  nodes: readonly LockStore[],
  { owner = 'me', nodeTimeout, guard = 0 }: CoreOptions = {},
): Redlock {
  return new Redlock({ nodes, owner, driftFactor: 0.01, nodeTimeout, guard: new RestartGuard(guard) });
}

/** What nodes share; `warnings` collects what they warn of. */
export function newFleet(guarded = false): StoreContext & { readonly warnings: string[] } {
  const warnings: string[] = [];
  const warnOnce = (text: string): void => {
    if (!warnings.includes(text)) warnings.push(text);
  };
  return { keyPrefix: 'lock:', guarded, names: new Set(), runIds: new Map(), warnOnce, warnings };
}

/** Nodes with connections of their own to these servers. */
export function nodesTo(urls: readonly string[], fleet: StoreContext = newFleet()): RedisStore[] {
  return urls.map((url) => new RedisStore(openClient(url), true, fleet));
}

/** How many locks a server holds; fencing counters stay. */
export async function countLocks(client: Redis): Promise<number> {
  return (await client.keys('*:l')).length;
}

/** Who has the locks that a server holds. */
export async function ownersOfLocks(client: Redis): Promise<string[]> {
  const keys = await client.keys('*:l');
  const values = await Promise.all(keys.map((key) => client.get(key)));
  // One that ended meanwhile is not there any more.
  return values.flatMap((value) => (value === null ? [] : [ownerOf(value)]));
}
