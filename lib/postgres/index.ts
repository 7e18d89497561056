export { postgres } from '../stores/postgres/postgres.js';
export type { PostgresOptions } from '../stores/postgres/postgres.options.js';
export type { StoreFactory, StoreTerms } from '../core/store-factory.js';
