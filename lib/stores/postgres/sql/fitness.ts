import type { EntryPoint } from './sql-function.js';

/** Writes what a lock writes, so that a full disk or a lack of rights shows. */
export const TRY_TO_WRITE: EntryPoint = {
  signature: 'try_to_write()',
  returns: 'void',
  body: `
begin
  update probe set written = clock_timestamp();
end`,
};

/**
 * What kind of server it is. Needs no rights, and no schema; runs on a standby.
 */
export const DESCRIBE = `select json_build_object(
  'standby', pg_is_in_recovery(),
  'readOnly', current_setting('default_transaction_read_only') = 'on',
  'isolation', current_setting('default_transaction_isolation'),
  'encoding', getdatabaseencoding(),
  'version', current_setting('server_version_num')::integer,
  'fsync', current_setting('fsync'),
  'synchronousCommit', current_setting('synchronous_commit'),
  'synchronousStandbys', current_setting('synchronous_standby_names'),
  'at', extract(epoch from clock_timestamp()) * 1000
)::text as answer`;
