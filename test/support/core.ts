import type { Redis } from 'ioredis';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import type { StoreContext } from '../../lib/stores/redis/store-context.js';
import { parseRecord, STATE } from '../../lib/stores/redis/record.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import type { Store } from '../../lib/core/ports.js';
import { LINGER_MS } from '../../lib/core/store-times.js';
import { Redlock } from '../../lib/redlock/redlock.js';
import { RestartGuard } from '../../lib/redlock/restart-guard.js';

// These functions make a `Redlock` and its nodes without the Nest module.

export interface CoreOptions {
  readonly owner?: string;
  /** Milliseconds that a node may take to answer; by default derived from the ttl. */
  readonly nodeTimeout?: number;
  /** Milliseconds of the restart guard; by default there is no guard. */
  readonly guard?: number;
}

export function redlockOver(
  nodes: readonly Store[],
  { owner = 'me', nodeTimeout, guard = 0 }: CoreOptions = {},
): Redlock {
  return new Redlock(nodes, { owner, driftFactor: 0.01, nodeTimeout, guard: new RestartGuard(guard) });
}

/** Makes the context that several nodes share; `warnings` collects their warnings. */
export function newFleet(guarded = false, several = false): StoreContext & { readonly warnings: string[] } {
  const warnings: string[] = [];
  const warnOnce = (text: string): void => {
    if (!warnings.includes(text)) warnings.push(text);
  };
  return { keyPrefix: 'lock:', guarded, several, names: new Set(), runIds: new Map(), warnOnce, warnings };
}

/** Makes a node with its own connection for each server. */
export function nodesTo(
  urls: readonly string[],
  context: StoreContext = newFleet(false, urls.length > 1),
): RedisStore[] {
  return urls.map((url) => new RedisStore(openClient(url), true, context));
}

/** Counts the locks that a server holds. Records of released locks, which stay for a while, do not count. */
export async function countLocks(client: Redis): Promise<number> {
  return (await heldRecords(client)).length;
}

/** Lists the Redis keys of the locks that a server holds. */
export async function heldKeys(client: Redis): Promise<string[]> {
  return (await heldRecords(client)).map(({ key }) => key);
}

/** Lists the owners of the locks that a server holds. */
export async function ownersOfLocks(client: Redis): Promise<string[]> {
  return (await heldRecords(client)).map(({ record }) => parseRecord(record).owner);
}

/**
 * Reads the keys that several callers can hold. Lists each holder that has time left although no record says that the
 * key is held. There must be none. A server may still store holders whose time is over; they are not listed.
 */
export async function holdersWithoutRecord(client: Redis): Promise<string[]> {
  const held = await heldKeys(client);
  const sets = (await client.keys('*}:h')).filter((key) => !held.includes(key.slice(0, -':h'.length)));
  const [seconds, micros] = await client.time();
  const now = Number(seconds) * 1_000 + Number(micros) / 1_000;
  const ids = await Promise.all(sets.map((set) => client.zrangebyscore(set, `(${now}`, '+inf')));
  return ids.flatMap((ofSet, index) => ofSet.map((id) => `${sets[index]} ${id}`));
}

/** Makes the record of a lock that is held. */
export function recordOf(owner: string, id = '0'.repeat(32), token = 1_880_000_000_000_000): string {
  return `H-${String(token).padStart(16, '0')}:${id}:1700000000000:${owner}`;
}

async function heldRecords(client: Redis): Promise<{ readonly key: string; readonly record: string }[]> {
  const keys = await client.keys('*{*}');
  const found = await Promise.all(
    keys.map(async (key) => ({ key, record: await client.get(key), left: await client.pttl(key) })),
  );
  // A lock may end between the list of keys and the read of its record.
  return found.flatMap(({ key, record, left }) =>
    record !== null && !record.startsWith(STATE.free) && (left === -1 || left > LINGER_MS)
      ? [{ key, record }]
      : [],
  );
}
