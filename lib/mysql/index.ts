export { mysql } from '../stores/mysql/mysql.js';
export type { MysqlOptions } from '../stores/mysql/mysql.options.js';
export type { StoreFactory, StoreTerms } from '../core/store-factory.js';
