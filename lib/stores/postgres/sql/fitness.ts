import type { EntryPoint } from './sql-function.js';

/** Makes the same writes as a lock, to detect a full disk or a lack of rights. */
export const TRY_TO_WRITE: EntryPoint = {
  signature: 'try_to_write()',
  returns: 'void',
  body: `
begin
  update probe set written = clock_timestamp();
end`,
};

/** Describes the server. Needs no rights and no schema, and also runs on a standby. */
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
