import type { LockStore } from '../sample-app/config/environment.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import { DurableServer } from './durable-server.js';
import type { LockServer } from './lock-server.js';
import type { RedisKind } from './redis-kind.js';
import { RedisNode } from './redis-node.js';

/** Location of the locks of a run. */
export interface LockPlan {
  readonly store: LockStore;
  /** Number of servers that vote; `replicated`: one Redis master with a replica, reached by one name. */
  readonly nodes: number | 'replicated';
}

/** Names of the servers of a plan. */
export function namesOfServers({ store, nodes }: LockPlan): string[] {
  if (store === 'postgres') return ['PostgreSQL'];
  if (store === 'etcd') return ['etcd'];
  if (nodes === 'replicated') return ['master', 'replica'];
  return Array.from({ length: nodes }, (_, index) => `node-${index + 1}`);
}

/** Starts the servers of a plan, which belong to its run alone. */
export function startServers(plan: LockPlan, redis: RedisKind, stops: StopList): Promise<LockServer[]> {
  return Promise.all(
    namesOfServers(plan).map((name) => {
      switch (plan.store) {
        case 'redis':
          return RedisNode.start(name, redis, stops);
        case 'postgres':
          return DurableServer.startPostgres(name, stops);
        case 'etcd':
          return DurableServer.startEtcd(name, stops);
      }
    }),
  );
}

/** Settings that give an instance its locks. @param urls - of the servers, as the instance reaches them */
export function lockEnvironment(store: LockStore, urls: readonly string[]): Record<string, string> {
  const variable = { redis: 'LOCK_REDIS_URLS', postgres: 'LOCK_DATABASE_URL', etcd: 'ETCD_URLS' }[store];
  return { LOCK_STORE: store, [variable]: urls.join(',') };
}
