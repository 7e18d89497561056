import type { LockStore } from '../sample-app/config/environment.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import { DurableServer } from './durable-server.js';
import type { LockServer } from './lock-server.js';
import type { RedisKind } from './redis-kind.js';
import { RedisNode } from './redis-node.js';

/** Store of the locks of a run, and number of its servers. */
export interface LockPlan {
  readonly store: LockStore;
  /** Number of servers that vote. `replicated` is one Redis master with a replica under one name. */
  readonly nodes: number | 'replicated';
}

/** Returns the names of the servers of a plan. */
export function namesOfServers({ store, nodes }: LockPlan): string[] {
  if (store === 'postgres') return ['PostgreSQL'];
  if (store === 'mysql') return ['MariaDB'];
  if (store === 'etcd') return ['etcd'];
  if (store === 'zookeeper') return ['ZooKeeper'];
  if (nodes === 'replicated') return ['master', 'replica'];
  return Array.from({ length: nodes }, (_, index) => `node-${index + 1}`);
}

/** Starts the servers of a plan. Only one run uses these servers. */
export function startServers(plan: LockPlan, redis: RedisKind, stops: StopList): Promise<LockServer[]> {
  return Promise.all(
    namesOfServers(plan).map((name) => {
      switch (plan.store) {
        case 'redis':
          return RedisNode.start(name, redis, stops);
        case 'postgres':
          return DurableServer.startPostgres(name, stops);
        case 'mysql':
          return DurableServer.startMariadb(name, stops);
        case 'etcd':
          return DurableServer.startEtcd(name, stops);
        case 'zookeeper':
          return DurableServer.startZooKeeper(name, stops);
      }
    }),
  );
}

/**
 * Returns the settings of an instance for its locks.
 *
 * @param urls - URLs of the servers for this instance
 */
export function lockEnvironment(store: LockStore, urls: readonly string[]): Record<string, string> {
  const variable = {
    redis: 'LOCK_REDIS_URLS',
    postgres: 'LOCK_DATABASE_URL',
    mysql: 'MYSQL_URL',
    etcd: 'ETCD_URLS',
    zookeeper: 'ZOOKEEPER_SERVERS',
  }[store];
  // ZooKeeper has addresses without a scheme.
  const values = store === 'zookeeper' ? urls.map((url) => new URL(url).host) : urls;
  return { LOCK_STORE: store, [variable]: values.join(',') };
}
