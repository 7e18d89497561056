import type { Client } from 'pg';
import { asError, UnfitStoreError } from '../../core/errors.js';
import { preparedInTime } from '../database/connect-in-time.js';
import { valueOf } from './own-client.js';
import { foreignBecause, SCHEMA_VERSION, schemaDescriptionSql, schemaSql } from './schema.js';
import { DESCRIBE } from './sql/fitness.js';
import type { SchemaDescription } from './sql/ownership.js';

/** Settings and state of the server, as {@link DESCRIBE} returns them. */
export interface ServerDescription {
  readonly standby: boolean;
  readonly readOnly: boolean;
  readonly isolation: string;
  readonly encoding: string;
  readonly version: number;
  readonly fsync: string;
  readonly synchronousCommit: string;
  readonly synchronousStandbys: string;
  /** Time of the server, in milliseconds since 1970. */
  readonly at: number;
}

/** The state of the server and of the schema, which a new connection asks for in one round trip. */
interface Found {
  readonly server: ServerDescription;
  readonly schema: SchemaDescription;
}

const NOT_ALLOWED = '42501';

/**
 * Checks if the server can be used, and creates the schema if it is missing or old.
 *
 * @param mayMake - `true` to create a missing schema
 * @param learn - called with the server's time
 * @returns the server's settings
 * @throws UnfitStoreError when the server must not be used
 */
export async function prepare(
  client: Client,
  schema: string,
  mayMake: boolean,
  learn: (time: number) => void,
): Promise<ServerDescription> {
  const text = `select json_build_object('server', (${DESCRIBE})::json, 'schema', (${schemaDescriptionSql(schema)}))::text`;
  const { server, schema: found } = JSON.parse((await preparedInTime(valueOf(client, text))) ?? '') as Found;
  learn(server.at);
  const unfit = unfitBecause(server) ?? uselessBecause(schema, found);
  if (unfit !== undefined) throw new UnfitStoreError(unfit);
  if ((found.version ?? 0) >= SCHEMA_VERSION) return server;
  if (!mayMake)
    throw new UnfitStoreError(
      `has no tables for locks in the schema ${schema}, or only old tables: start the application, which creates them, or run ` +
        'the output of `npx nestjs-redlock postgres-migration`',
    );
  try {
    await preparedInTime(client.query(schemaSql(schema)));
    return server;
  } catch (thrown) {
    // The failed transaction is still open.
    await preparedInTime(client.query('rollback')).catch(() => undefined);
    const { code, message } = thrown as { code?: string; message: string };
    if (code !== NOT_ALLOWED) throw asError(thrown);
    throw new UnfitStoreError(
      `has no tables for locks in the schema ${schema}, or only old tables, and its role has no right to create the tables (${message}): ` +
        'run the output of `npx nestjs-redlock postgres-migration` as a role with that right',
      { cause: thrown },
    );
  }
}

/** The reason why the schema cannot be used. */
function uselessBecause(schema: string, { version, usable, foreign }: SchemaDescription): string | undefined {
  if (foreign.length > 0) return `cannot be used for locks: ${foreignBecause(schema, foreign.join(', '))}`;
  if (version !== null && !usable)
    return (
      `does not let its role use the schema ${schema}: run the output of ` +
      '`npx nestjs-redlock postgres-migration --role ROLE`'
    );
  return undefined;
}

/**
 * The reason why the server must not be used for locks; `undefined` if it can be used. The text continues a sentence
 * that begins with the name of the server.
 */
export function unfitBecause({
  standby,
  readOnly,
  isolation,
  encoding,
}: ServerDescription): string | undefined {
  if (standby) return 'cannot be used for locks: it is a standby; give the primary';
  if (readOnly)
    return 'cannot be used for locks: default_transaction_read_only is on; turn it off for this role';
  // With another isolation level, a statement that waited for a row would read the state from before its wait.
  if (isolation !== 'read committed')
    return (
      `cannot be used for locks: default_transaction_isolation is ${isolation}; set it for this role: ` +
      "alter role ROLE set default_transaction_isolation = 'read committed'"
    );
  if (encoding !== 'UTF8')
    return `cannot be used for locks: the encoding of its database is ${encoding}, not UTF8; give a database with UTF8`;
  return undefined;
}

/** Settings of the server that make locks less safe, each with its remedy. */
export function weakBecause({ fsync, synchronousCommit }: ServerDescription): string[] {
  const weak: string[] = [];
  if (fsync === 'off') weak.push('fsync is off, so a crash of the machine forgets locks; turn it on');
  if (synchronousCommit === 'off')
    weak.push(
      'synchronous_commit is off, so a crash of the server forgets locks; set it to on for this role',
    );
  return weak;
}
