export { etcd } from '../stores/etcd/etcd.js';
export type { EtcdOptions } from '../stores/etcd/etcd.options.js';
export type { StoreFactory, StoreTerms } from '../core/store-factory.js';
