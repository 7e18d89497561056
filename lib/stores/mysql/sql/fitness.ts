import { NOW } from './procedure.js';

/**
 * Makes the same write as a lock, to detect a full disk, a read-only server or a lack of rights. Makes the row if somebody
 * has removed it.
 */
export const TRY_TO_WRITE = `insert into {state} (one, written) values (1, ${NOW}) on duplicate key update written = ${NOW}`;

/** The settings that decide if a server can keep locks. A server has only some of them. */
const SETTINGS = [
  'version',
  'version_comment',
  // The time of the server: a setting with a value of its own for each statement.
  'timestamp',
  'read_only',
  'innodb_read_only',
  'log_bin',
  'binlog_format',
  'sync_binlog',
  'innodb_flush_log_at_trx_commit',
  'wsrep_on',
  'wsrep_cluster_address',
  'group_replication_group_name',
  'group_replication_single_primary_mode',
  'max_allowed_packet',
  'rpl_semi_sync_master_enabled',
  'rpl_semi_sync_master_timeout',
  'rpl_semi_sync_source_enabled',
  'rpl_semi_sync_source_timeout',
];

/** Describes the server. Needs no rights and no tables, and also runs on a replica. */
export const DESCRIBE = `show variables where variable_name in (${SETTINGS.map((name) => `'${name}'`).join(', ')})`;
