export { FencedRegister } from './fenced-register.js';
export type { FencedRegisterOptions } from './fenced-register.options.js';
export { type FencedAnswer, fencedWrite } from './fenced-write.js';
export type { MysqlClient, MysqlPool, MysqlPoolClient } from './mysql-client.js';
export { MysqlFencedRegister } from './mysql-fenced-register.js';
export type { SqlClient, SqlPool, SqlPoolClient, SqlResult } from './sql-client.js';
export { StaleTokenError } from './stale-token.error.js';
export type { TokenHolder } from './token-holder.js';
