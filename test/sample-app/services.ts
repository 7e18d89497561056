import { fileURLToPath } from 'node:url';
import { StopList } from '../../sample-app/demo/stop-list.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { startRedis } from '../support/redis-server.js';

/** File of the compiled sample, which `npm run build` makes. */
export const MAIN = fileURLToPath(new URL('../../dist/sample-app/main.js', import.meta.url));

/** Milliseconds that the servers may take to start on a busy machine. */
export const START_TIMEOUT = 300_000;

/** Makes a stop list. The clean-up of the test file stops everything that is still on the list. */
export function stopList(): StopList {
  const stops = new StopList();
  cleanUpAfterTests(() => stops.stopAll());
  return stops;
}

/** Starts a PostgreSQL and a Redis for the instances of a test file. */
export async function startServices(): Promise<{ databaseUrl: string; redisUrl: string }> {
  const [database, redis] = await Promise.all([startPostgresServer(), startRedis()]);
  return { databaseUrl: database.url, redisUrl: redis.url };
}
