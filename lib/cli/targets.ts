import type { StoreFactory } from '../core/store-factory.js';
import type { Target } from './target.js';
import { etcdOf, isEtcd } from './etcd-target.js';
import { isMysql, mysqlOf } from './mysql-target.js';
import { isPostgres, postgresOf } from './postgres-target.js';
import { isZooKeeper, zookeeperOf } from './zookeeper-target.js';

/**
 * Returns the store of a target, before it is opened; `undefined` for Redis.
 *
 * @throws UsageError
 */
export async function factoryOf(target: Target): Promise<StoreFactory | undefined> {
  if (isPostgres(target)) return postgresOf(target);
  if (isMysql(target)) return mysqlOf(target);
  if (isZooKeeper(target)) return zookeeperOf(target);
  return isEtcd(target) ? etcdOf(target) : undefined;
}

/** `true` if the nodes of a target are Redis servers. */
export function isRedis(target: Target): boolean {
  return ![isPostgres, isMysql, isEtcd, isZooKeeper].some((isOther) => isOther(target));
}
