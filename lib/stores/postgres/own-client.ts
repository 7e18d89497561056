import { Socket } from 'node:net';
import { Client, type ClientConfig, defaults } from 'pg';
import { withTimeout } from '../../core/with-timeout.js';
import type { DatabaseClient, DatabaseDriver } from '../database/database-client.js';
import { withAdvice } from './connection-advice.js';

/** Milliseconds that the server has for closing a connection that ends. After that, the socket is destroyed. */
const END_WITHIN_MS = 1_000;

/**
 * Milliseconds without traffic after which TCP checks a connection. Networks forget idle connections after half a minute
 * to an hour; the default of Linux is two hours.
 */
const KEEP_ALIVE_AFTER_MS = 5_000;

/** Milliseconds within which a connection must be open. */
const CONNECT_WITHIN_MS = 5_000;

/** The longest time limit that PostgreSQL and Node take, in milliseconds: 24 days. */
const NO_LIMIT_MS = 2_147_483_647;

/** Time limits that an application can set in `pg.defaults` for its own queries. */
const LIMITS = [
  'statement_timeout',
  'lock_timeout',
  'idle_in_transaction_session_timeout',
  'query_timeout',
] as const;

/**
 * Leaves values as texts: the application may have set other parsers in `pg`. With `pg.defaults.binary` a text arrives
 * as bytes. So every statement must return a text: other types have another binary form.
 */
const AS_TEXT = { getTypeParser: () => (value: string | Buffer) => value.toString() };

/**
 * Error code of a server that became a standby or read-only. The connection is then replaced, because a new connection
 * may lead to the primary.
 */
const READ_ONLY = '25006';

/** Error codes of a server that closes the connection: an administrator, a crash, or the start of the server. */
const CLOSES = /^57P0/;

/** A client of `pg` that depends on no setting in `pg.defaults`, and whose end has a time limit. */
export interface OwnClient extends DatabaseClient {
  readonly client: Client;
}

/** Opens connections with `pg`. */
export function postgresDriver(config: ClientConfig): DatabaseDriver<OwnClient> {
  return {
    newClient: () => newClient(config),
    test: `select '1'`,
    replaces(error) {
      const { code = '' } = error as { code?: string };
      return code === READ_ONLY || CLOSES.test(code);
    },
    withAdvice,
  };
}

function newClient(config: ClientConfig): OwnClient {
  const socket = new Socket();
  const client = new Client({
    ...config,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_AFTER_MS,
    connectionTimeoutMillis: CONNECT_WITHIN_MS,
    ...unlimited(),
    stream: () => socket,
  });
  return {
    client,
    async connect() {
      // `pg` never settles its Promise when the client is ended before it is connected (seen with 8.23).
      const ended = new Promise<never>((_, reject) => {
        client.once('end', () => reject(new Error('the connection was closed')));
      });
      await Promise.race([client.connect(), ended]);
    },
    run: (text, values) => valueOf(client, text, values),
    onLost(listener) {
      client.on('error', listener);
      client.on('end', () => listener(new Error('the connection was closed')));
    },
    async end() {
      // `pg` waits for the server to close the connection. If the network is silent, that is a quarter of an hour.
      await withTimeout(client.end(), END_WITHIN_MS).catch(() => undefined);
      socket.destroy();
    },
  };
}

/**
 * Replaces the time limits in `pg.defaults`. They cannot be switched off for one client: `pg` takes its default in place
 * of 0. A limit that the application has not set stays out: a pooler may refuse the parameter.
 */
function unlimited(): ClientConfig {
  return Object.fromEntries(LIMITS.filter((name) => defaults[name]).map((name) => [name, NO_LIMIT_MS]));
}

/** The value in the only row and column of a result, which must be a text. */
export async function valueOf(
  client: Client,
  text: string,
  values: readonly unknown[] = [],
): Promise<string | undefined> {
  const { rows } = await client.query<[string | null]>({
    text,
    values: [...values],
    rowMode: 'array',
    types: AS_TEXT,
  });
  return rows[0]?.[0] ?? undefined;
}
