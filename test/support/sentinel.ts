import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { ping } from './redis-ping.js';
import type { RedisServer } from './redis-server.js';
import { until } from './until.js';
import { startWatchdog } from './watchdog.js';

/** Starts a real Sentinel that watches `master` under a name, and returns its port. It ends after the test file. */
export async function startSentinel(
  master: Pick<RedisServer, 'host' | 'port'>,
  name: string,
): Promise<number> {
  const port = await freePort();
  const directory = await mkdtemp(join(tmpdir(), 'sentinel-test-'));
  // The Sentinel writes its state into its configuration file.
  const configuration = join(directory, 'sentinel.conf');
  await writeFile(
    configuration,
    `port ${port}\nbind ${LOOPBACK}\ndir ${directory}\nsentinel monitor ${name} ${master.host} ${master.port} 1\n`,
  );
  const child = spawn('redis-server', [configuration, '--sentinel'], { detached: true, stdio: 'ignore' });
  child.unref();
  const watchdog = child.pid === undefined ? undefined : startWatchdog(child.pid, directory);
  const exited = new Promise((resolve) => child.once('exit', resolve));
  cleanUpAfterTests(async () => {
    child.ref();
    child.kill('SIGKILL');
    await exited;
    watchdog?.kill('SIGKILL');
    await rm(directory, { recursive: true, force: true });
  });
  await until(() => ping(LOOPBACK, port));
  return port;
}
