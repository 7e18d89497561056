import type { RedlockModuleOptions } from 'nestjs-redlock';
import { etcd } from 'nestjs-redlock/etcd';
import { mysql } from 'nestjs-redlock/mysql';
import { postgres } from 'nestjs-redlock/postgres';
import { zookeeper } from 'nestjs-redlock/zookeeper';
import type { Environment } from './environment.js';

/** Returns the `nodes` of the module for the store of the locks. All differences between stores are in this function. */
export function lockNodes(environment: Environment): RedlockModuleOptions['nodes'] {
  const {
    LOCK_STORE,
    LOCK_SCHEMA: schema,
    DATABASE_URL,
    LOCK_DATABASE_URL = DATABASE_URL,
    REDIS_URLS,
    LOCK_REDIS_URLS,
    ETCD_URLS,
    MYSQL_URL,
    ZOOKEEPER_SERVERS,
  } = environment;
  switch (LOCK_STORE) {
    case 'redis':
      return LOCK_REDIS_URLS ?? REDIS_URLS;
    case 'postgres':
      return postgres({ connectionString: LOCK_DATABASE_URL, schema });
    case 'mysql':
      return mysql({ uri: MYSQL_URL });
    case 'etcd':
      return etcd({ endpoints: ETCD_URLS });
    case 'zookeeper':
      return zookeeper({ connectionString: ZOOKEEPER_SERVERS });
  }
}
