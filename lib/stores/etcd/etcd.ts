import type { StoreFactory } from '../../core/store-factory.js';
import { checkEtcdOptions, type EtcdOptions } from './etcd.options.js';
import { EtcdStore } from './etcd-store.js';

/**
 * Locks in etcd 3.4 or later. The result must be the only entry of the module's `nodes`, because a cluster that
 * replicates itself is one node.
 *
 * Uses the JSON gateway of the members over HTTP, and needs no package. A ttl is a whole number of seconds, at least 2.
 *
 * @throws TypeError naming the invalid option
 * @see docs/etcd.md
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common';
 * import { RedlockModule } from 'nestjs-redlock';
 * import { etcd } from 'nestjs-redlock/etcd';
 *
 * @Module({
 *   imports: [
 *     RedlockModule.forRoot({
 *       nodes: etcd({ endpoints: ['http://10.0.0.1:2379', 'http://10.0.0.2:2379', 'http://10.0.0.3:2379'] }),
 *     }),
 *   ],
 * })
 * export class AppModule {}
 * ```
 */
export function etcd(options: EtcdOptions): StoreFactory {
  checkEtcdOptions(options);
  return { openStore: (terms) => new EtcdStore(options, terms), made: { by: 'etcd', options } };
}
