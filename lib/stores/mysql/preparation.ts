import { asError, UnfitStoreError } from '../../core/errors.js';
import { preparedInTime } from '../database/connect-in-time.js';
import type { OwnClient } from './own-client.js';
import {
  schemaDescriptionOf,
  schemaDescriptionSql,
  type SchemaDescription,
  type SchemaNames,
  schemaStatements,
} from './schema.js';
import { DESCRIBE } from './sql/fitness.js';
import { HAS_STATE_ROW, STATE_ROW } from './sql/tables.js';

/** Settings and state of a server, by their names; it has only some of them. */
export type ServerSettings = Readonly<Record<string, string>>;

/** The oldest versions with all that is needed: `json_table`, `skip locked` and `create procedure if not exists`. */
const LEAST_MYSQL = [8, 0, 29] as const;
const LEAST_MARIADB = [10, 6, 0] as const;

/**
 * Milliseconds for which a primary must wait for its semi-synchronous replica. Then it replicates without waiting, so a
 * shorter time lets it grant locks that the replica lacks, while nobody has noticed the loss of the replica.
 */
const LEAST_SEMI_SYNC_MS = 86_400_000;

/** Errors of a user without the right to create tables or procedures. */
const NOT_ALLOWED =
  /^ER_(TABLEACCESS|DBACCESS|PROCACCESS|SPECIFIC_ACCESS|ACCESS)_DENIED_ERROR|^ER_DBACCESS_DENIED/;

const MIGRATION = 'the output of `npx nestjs-redlock schema --node mysql://…`';

/**
 * Checks if the server can be used, and creates tables and procedures that are missing.
 *
 * @param mayMake - `true` to create them
 * @param learn - called with the server's time
 * @returns the server's settings
 * @throws UnfitStoreError when the server must not be used
 */
export async function prepare(
  client: OwnClient,
  names: SchemaNames,
  mayMake: boolean,
  learn: (time: number) => void,
): Promise<ServerSettings> {
  const run = (text: string): Promise<string | undefined> => preparedInTime(client.run(text));
  const settings = settingsOf(await run(DESCRIBE));
  // The server tells seconds since 1970.
  learn(Number(settings['timestamp']) * 1_000);
  const unfit = unfitBecause(settings);
  if (unfit !== undefined) throw new UnfitStoreError(unfit);
  const found = await describe(run, names);
  if (found.isComplete) {
    if (mayMake && (await run(names.in(HAS_STATE_ROW))) === '0') await run(names.in(STATE_ROW));
    return settings;
  }
  const missing = `has no tables and procedures for locks with the prefix ${names.prefix}, or the user may not use them`;
  if (!mayMake)
    throw new UnfitStoreError(`${missing}: start the application, which creates them, or run ${MIGRATION}`);
  try {
    for (const statement of schemaStatements(names)) await run(statement);
  } catch (thrown) {
    const { code = '', message } = thrown as { code?: string; message: string };
    if (!NOT_ALLOWED.test(code)) throw asError(thrown);
    throw new UnfitStoreError(
      `${missing}, and the user has no right to create them (${message}): run ${MIGRATION} as a user with that right, ` +
        'with `--role` for this user',
      { cause: thrown },
    );
  }
  // Another object may have got one of the names in the meantime.
  await describe(run, names);
  return settings;
}

/** @throws UnfitStoreError when the database has objects of others with our names */
async function describe(run: OwnClient['run'], names: SchemaNames): Promise<SchemaDescription> {
  const found = schemaDescriptionOf(await run(schemaDescriptionSql(names)), names);
  if (found.foreign.length > 0)
    throw new UnfitStoreError(
      `cannot be used for locks: the database has objects with names that nestjs-redlock needs, which are not its own: ` +
        `${found.foreign.join(', ')}. Give another \`tablePrefix\`, or a database for locks alone`,
    );
  return found;
}

/** The settings in the answer to {@link DESCRIBE}. */
export function settingsOf(text: string | undefined): ServerSettings {
  return JSON.parse(text ?? '{}') as ServerSettings;
}

/**
 * The reason why the server must not be used for locks; `undefined` if it can be used. The text continues a sentence
 * that begins with the name of the server.
 */
export function unfitBecause(settings: ServerSettings): string | undefined {
  const { version = '' } = settings;
  if (isOld(version))
    return (
      `cannot be used for locks: its version is ${version}, which lacks functions that are needed; ` +
      `give MySQL ${LEAST_MYSQL.join('.')} or MariaDB ${LEAST_MARIADB.join('.')}, or a later one`
    );
  if (isOn(settings['innodb_read_only']))
    return 'cannot be used for locks: innodb_read_only is on, as on a reader of a cluster; give the writer';
  // MariaDB 12 has further values.
  if (!/^(off|0|no)?$/i.test(settings['read_only'] ?? ''))
    return 'cannot be used for locks: read_only is on, as on a replica; give the primary';
  // A statement that waited for a row must read its present state, and a binary log of statements does not allow that.
  if (isOn(settings['log_bin']) && settings['binlog_format'] === 'STATEMENT')
    return 'cannot be used for locks: binlog_format is STATEMENT; set it to ROW';
  return undefined;
}

/** Settings of the server that make locks less safe, each with its remedy. */
export function weakBecause(settings: ServerSettings): string[] {
  const weak: string[] = [];
  const flush = settings['innodb_flush_log_at_trx_commit'];
  if (flush !== undefined && flush !== '1')
    weak.push(`innodb_flush_log_at_trx_commit is ${flush}, so a crash forgets locks; set it to 1`);
  const sync = settings['sync_binlog'];
  if (isOn(settings['log_bin']) && sync !== undefined && sync !== '1')
    weak.push(
      `sync_binlog is ${sync}, so a crash of the machine forgets locks, on the server or on replicas; set it to 1`,
    );
  // MySQL and MariaDB have different names for the primary.
  for (const primary of ['source', 'master']) {
    const timeout = `rpl_semi_sync_${primary}_timeout`;
    const limit = Number(settings[timeout]);
    if (isOn(settings[`rpl_semi_sync_${primary}_enabled`]) && limit < LEAST_SEMI_SYNC_MS)
      weak.push(
        `${timeout} is ${limit} ms: after that, locks are granted that a promoted replica lacks; set it to a day or more`,
      );
  }
  const isGalera = isOn(settings['wsrep_on']) && (settings['wsrep_cluster_address'] ?? '') !== '';
  if (isGalera)
    weak.push(
      'the server is a node of a Galera cluster, whose nodes have clocks of their own; let all processes write to one node',
    );
  const isGroup = (settings['group_replication_group_name'] ?? '') !== '';
  if (isGroup && !isOn(settings['group_replication_single_primary_mode']))
    weak.push(
      'the group has several primaries, which have clocks of their own; turn group_replication_single_primary_mode on',
    );
  return weak;
}

function isOn(value: string | undefined): boolean {
  return value !== undefined && /^(on|1|yes)$/i.test(value);
}

function isOld(version: string): boolean {
  const [, ...parts] = /^(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)/.exec(version) ?? [];
  const least = /mariadb/i.test(version) ? LEAST_MARIADB : LEAST_MYSQL;
  for (const [index, wanted] of least.entries()) {
    const part = Number(parts[index] ?? Number.MAX_SAFE_INTEGER);
    if (part !== wanted) return part < wanted;
  }
  return false;
}
