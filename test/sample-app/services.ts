import { fileURLToPath } from 'node:url';
import { StopList } from '../../sample-app/demo/stop-list.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { startRedis } from '../support/redis-server.js';

/** The compiled sample; `npm test` builds it. */
export const MAIN = fileURLToPath(new URL('../../dist/sample-app/main.js', import.meta.url));

/** Time limit of the servers to start on a busy machine. */
export const START_TIMEOUT = 300_000;

/** A stop list that is emptied after the test file at the latest. */
export function stopList(): StopList {
  const stops = new StopList();
  cleanUpAfterTests(() => stops.stopAll());
  return stops;
}

/** A real PostgreSQL and a real Redis for the instances of a test file. */
export async function startServices(): Promise<{ databaseUrl: string; redisUrl: string }> {
  const [database, redis] = await Promise.all([startPostgresServer(), startRedis()]);
  return { databaseUrl: database.url, redisUrl: redis.url };
}
