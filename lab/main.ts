import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { platform } from 'node:os';
import { type Environment, readEnvironment } from '../sample-app/config/environment.js';
import { checkServices } from '../sample-app/config/service-check.js';
import { startPostgres } from '../sample-app/demo/embedded-postgres.js';
import { StopList } from '../sample-app/demo/stop-list.js';
import { type LabArguments, readArguments } from './arguments.js';
import { InstancePool } from './instance-pool.js';
import { Lab } from './lab.js';
import type { RunRecord } from './lab-event.js';
import { pageWith, servePage } from './page-server.js';
import { findRedis } from './redis-kind.js';
import { RedisNode } from './redis-node.js';
import { recoveryOf, resultTable } from './result-table.js';
import type { LabServices } from './stage.js';
import { findStores } from './store-choices.js';

/** Exit code: all runs matched their descriptions. */
const AS_DESCRIBED = 0;
/** Exit code: a run differed from its description, or the lab could not run. */
const FAILED = 1;
/** Exit code: all runs matched their descriptions, but some could not run on this machine. */
const INCOMPLETE = 3;

async function main(
  { scenarios, open, port, report, store }: LabArguments,
  stops: StopList,
): Promise<number> {
  const lab = new Lab(stops, await findStores(store));
  // The page comes first: if another lab is running, the start fails immediately.
  const url = await servePage(lab, port, stops);
  lab.services = await startServices(stops);
  console.log(`Page:       ${url}`);
  if (open) openBrowser(url);
  for (const scenario of scenarios) {
    console.log(`\n${scenario.number}. ${scenario.title}`);
    for (const record of await lab.run(scenario)) print(record);
  }
  if (scenarios.length > 0) {
    console.log(`\n${resultTable(lab.records)}\n`);
    await writeFile(report, await pageWith(lab.records));
    console.log(`Report with pictures: ${report}`);
  }
  if (open) {
    console.log('The page stays until you press Ctrl-C here.');
    await untilInterrupted;
    return AS_DESCRIBED;
  }
  return exitCode(lab.records);
}

/** Opens a browser. The lab prints the URL, so it works without a browser. */
function openBrowser(url: string): void {
  const [command, ...args] =
    platform() === 'darwin' ? ['open'] : platform() === 'win32' ? ['cmd', '/c', 'start', ''] : ['xdg-open'];
  if (process.env.BROWSER === 'none' || !command) return;
  const child = spawn(command, [...args, url], { stdio: 'ignore', detached: true });
  child.on('error', () => console.log('Open it in a browser.'));
  child.unref();
}

async function startServices(stops: StopList): Promise<LabServices> {
  const redis = await findRedis();
  console.log(`Redis:      ${redis.description}`);
  const pool = new InstancePool(stops);
  await pool.prepare(3);
  const given = process.env.DATABASE_URL;
  console.log(
    `PostgreSQL: ${given ? 'given by DATABASE_URL' : 'embedded-postgres (set DATABASE_URL to use another)'}`,
  );
  const [queue, databaseUrl] = await Promise.all([
    RedisNode.start('queue', redis, stops),
    given ?? startPostgres(stops),
  ]);
  const environment: Environment = readEnvironment({ DATABASE_URL: databaseUrl, REDIS_URLS: queue.url });
  await checkServices(environment);
  return { databaseUrl, queue, redis, pool };
}

function print({
  title,
  startedAt,
  endedAt = startedAt,
  happened,
  outcome,
  deviations,
  notRun,
}: RunRecord): void {
  const seconds = ((endedAt - startedAt) / 1_000).toFixed(1);
  const recovery = outcome?.recovery === undefined ? '' : `; time to recover ${recoveryOf(outcome.recovery)}`;
  console.log(`   ${title} (${seconds} s)\n     ${notRun ? `not run: ${notRun}` : `${happened}${recovery}`}`);
  for (const deviation of deviations ?? []) console.log(`     NOT AS DESCRIBED: ${deviation}`);
}

function exitCode(records: readonly RunRecord[]): number {
  if (records.some(({ deviations, notRun }) => !notRun && deviations?.length !== 0)) return FAILED;
  return records.some(({ notRun }) => notRun) ? INCOMPLETE : AS_DESCRIBED;
}

const stops = new StopList();
let interruption = '';
const untilInterrupted = new Promise<void>((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    // The listener stays, so that a second Ctrl-C does not interrupt the clean-up.
    process.on(signal, () => {
      interruption ||= signal;
      resolve();
    });
  }
});

try {
  const { open } = readArguments(process.argv.slice(2));
  const code = await Promise.race([
    main(readArguments(process.argv.slice(2)), stops),
    untilInterrupted.then(() => (open ? AS_DESCRIBED : FAILED)),
  ]);
  if (interruption) console.log(`\nEnded by ${interruption}; stopping everything that was started.`);
  process.exitCode = code;
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = FAILED;
} finally {
  await stops.stopAll();
}
