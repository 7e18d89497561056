export { zookeeper } from '../stores/zookeeper/zookeeper.js';
export type { TlsOptions, ZooKeeperLogin, ZooKeeperOptions } from '../stores/zookeeper/zookeeper.options.js';
export type { StoreFactory, StoreTerms } from '../core/store-factory.js';
