import type { StoreFactory } from '../../core/store-factory.js';
import { checkZooKeeperOptions, type ZooKeeperOptions } from './zookeeper.options.js';
import { ZooKeeperStore } from './zookeeper-store.js';

/**
 * Locks in ZooKeeper 3.5 or later. The result must be the only entry of the module's `nodes`, because an ensemble that
 * replicates itself is one node.
 *
 * Has a client of its own, and needs no package. A key has at most 100 readers or permits.
 *
 * @throws TypeError naming the invalid option
 * @see docs/zookeeper.md
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common';
 * import { RedlockModule } from 'nestjs-redlock';
 * import { zookeeper } from 'nestjs-redlock/zookeeper';
 *
 * @Module({
 *   imports: [
 *     RedlockModule.forRoot({
 *       nodes: zookeeper({ connectionString: '10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/locks' }),
 *     }),
 *   ],
 * })
 * export class AppModule {}
 * ```
 */
export function zookeeper(options: ZooKeeperOptions): StoreFactory {
  checkZooKeeperOptions(options);
  return { openStore: (terms) => new ZooKeeperStore(options, terms), made: { by: 'zookeeper', options } };
}
