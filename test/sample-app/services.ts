import { fileURLToPath } from 'node:url';
import { startPostgres } from '../../sample-app/demo/embedded-postgres.js';
import { StopList } from '../../sample-app/demo/stop-list.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
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
export async function startServices(stops: StopList): Promise<{ databaseUrl: string; redisUrl: string }> {
  const [databaseUrl, redis] = await Promise.all([startPostgres(stops), startRedis()]);
  return { databaseUrl, redisUrl: redis.url };
}
