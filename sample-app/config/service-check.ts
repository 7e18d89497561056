import { connect } from 'node:net';
import { Redis } from 'ioredis';
import { createConnection } from 'mysql2/promise';
import { Client } from 'pg';
import type { Environment } from './environment.js';

const ANSWER_TIMEOUT_MS = 10_000;

/**
 * Checks that the databases, Redis, etcd and ZooKeeper answer before the application starts. Without this check the clients would
 * retry without output, or with a stack trace each time; the user gets one sentence instead.
 *
 * @throws Error that says which server does not answer, why, and which variable to change
 */
export async function checkServices(environment: Environment): Promise<void> {
  const { DATABASE_URL, LOCK_DATABASE_URL, REDIS_URLS, ETCD_URLS, MYSQL_URL, ZOOKEEPER_SERVERS, LOCK_STORE } =
    environment;
  const { LOCK_REDIS_URLS = REDIS_URLS } = environment;
  const lockUrls = LOCK_STORE === 'redis' ? LOCK_REDIS_URLS : [];
  await checkDatabase(DATABASE_URL, 'DATABASE_URL');
  if (LOCK_STORE === 'postgres' && LOCK_DATABASE_URL !== undefined)
    await checkDatabase(LOCK_DATABASE_URL, 'LOCK_DATABASE_URL');
  if (LOCK_STORE === 'mysql') await checkMysql(MYSQL_URL);
  if (LOCK_STORE === 'etcd') await checkEtcd(ETCD_URLS);
  if (LOCK_STORE === 'zookeeper') await checkZooKeeper(ZOOKEEPER_SERVERS);
  const [queueUrl] = REDIS_URLS;
  const [queueProblem, ...problems] = await Promise.all([queueUrl, ...lockUrls].map(problemOfRedis));
  if (queueProblem !== undefined) {
    throw new Error(
      `Cannot reach Redis at ${withoutPassword(queueUrl)}, which carries the queue (${queueProblem}). ` +
        'Start it, or set REDIS_URLS.',
    );
  }
  const down = lockUrls.filter((_url, index) => problems[index] !== undefined);
  // A lock needs a majority of the nodes. With fewer nodes no instance could dispatch.
  if (down.length > 0 && down.length * 2 >= lockUrls.length) {
    throw new Error(
      `Cannot reach a majority of the Redis nodes; no answer from ${down.map(withoutPassword).join(', ')}. ` +
        'Start them, or set REDIS_URLS.',
    );
  }
}

async function checkDatabase(url: string, variable: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: ANSWER_TIMEOUT_MS });
  // Without a listener, a connection that breaks while it is being closed would be an uncaught error.
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
  } catch (error) {
    throw new Error(
      `Cannot use PostgreSQL at ${withoutPassword(url)} (${reasonOf(error)}). Start it, or set ${variable}.`,
      { cause: error },
    );
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function checkMysql(uri: string): Promise<void> {
  try {
    const connection = await createConnection({ uri, connectTimeout: ANSWER_TIMEOUT_MS });
    connection.on('error', () => undefined);
    connection.destroy();
  } catch (error) {
    throw new Error(
      `Cannot use MySQL or MariaDB at ${withoutPassword(uri)} (${reasonOf(error)}). Start it, or set MYSQL_URL.`,
      { cause: error },
    );
  }
}

async function checkEtcd(urls: readonly string[]): Promise<void> {
  const asked = urls.map((url) =>
    fetch(new URL('/health', url), { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) }),
  );
  try {
    await Promise.any(asked);
  } catch (error) {
    const [{ cause = error }] = (error as AggregateError).errors as [Error];
    throw new Error(
      `Cannot reach etcd at ${urls.map(withoutPassword).join(', ')} (${reasonOf(cause)}). ` +
        'Start it, or set ETCD_URLS.',
      { cause: error },
    );
  }
}

async function checkZooKeeper(servers: string): Promise<void> {
  const [list = ''] = servers.split('/');
  try {
    await Promise.any(list.split(',').map((server) => reach(new URL(`zookeeper://${server.trim()}`))));
  } catch (error) {
    const [first] = (error as AggregateError).errors as [Error];
    throw new Error(
      `Cannot reach ZooKeeper at ${list} (${reasonOf(first)}). Start it, or set ZOOKEEPER_SERVERS.`,
      { cause: error },
    );
  }
}

/** Connects, and closes the connection. */
function reach({ hostname, port }: URL): Promise<void> {
  return new Promise((resolve, reject) => {
    const host = hostname.replaceAll(/[[\]]/g, '');
    const socket = connect({ host, port: Number(port || 2_181), timeout: ANSWER_TIMEOUT_MS });
    socket.once('error', reject);
    socket.once('timeout', () => socket.destroy(new Error('no answer')));
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
  });
}

async function problemOfRedis(url: string): Promise<string | undefined> {
  const client = new Redis(url, {
    lazyConnect: true,
    connectTimeout: ANSWER_TIMEOUT_MS,
    commandTimeout: ANSWER_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  let problem: unknown;
  // The event has the cause; the rejection only says that the connection is closed.
  client.on('error', (error) => (problem = error));
  try {
    await client.connect();
    await client.ping();
    return undefined;
  } catch (error) {
    return reasonOf(problem ?? error);
  } finally {
    client.disconnect();
  }
}

/** An `AggregateError` (all addresses of a host refused) has an empty message but a code. */
function reasonOf(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  return message || code || String(error);
}

function withoutPassword(url: string): string {
  const shown = new URL(url);
  if (shown.password) shown.password = '***';
  return shown.href;
}
