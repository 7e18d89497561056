import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { giveTo, unprivilegedAccount } from '../../sample-app/demo/embedded-postgres.js';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import type { PostgresServer } from './postgres-server.js';
import { startWatchdog } from './watchdog.js';

/** Folders with programs. Debian puts PgBouncer into a folder that only the PATH of root contains. */
const FOLDERS = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin'];

/** Path of PgBouncer; `undefined` on a machine without PgBouncer. */
export const PGBOUNCER = FOLDERS.map((folder) => join(folder, 'pgbouncer')).find((file) => existsSync(file));

/** Message for a machine without PgBouncer. */
export const NO_PGBOUNCER =
  'There is no pgbouncer, so the tests of locks behind it are skipped: apt-get install pgbouncer';

/**
 * Starts a PgBouncer in transaction mode in front of a server. It has so few connections that two clients share one.
 * Returns its URL.
 */
export async function startPgBouncer(server: PostgresServer): Promise<string> {
  if (PGBOUNCER === undefined) throw new Error(NO_PGBOUNCER);
  const folder = await mkdtemp(join(tmpdir(), 'pgbouncer-test-'));
  const port = await freePort();
  const account = unprivilegedAccount();
  await writeFile(
    join(folder, 'pgbouncer.ini'),
    [
      '[databases]',
      `* = host=${server.host} port=${server.port}`,
      '[pgbouncer]',
      `listen_addr = ${LOOPBACK}`,
      `listen_port = ${port}`,
      'unix_socket_dir =',
      'auth_type = trust',
      `auth_file = ${join(folder, 'users')}`,
      'pool_mode = transaction',
      'default_pool_size = 2',
      'ignore_startup_parameters = extra_float_digits',
    ].join('\n'),
  );
  await writeFile(join(folder, 'users'), '"postgres" ""\n');
  await chmod(folder, 0o755);
  if (account) await giveTo(account, folder);
  const child = spawn(PGBOUNCER, [join(folder, 'pgbouncer.ini')], {
    ...account,
    cwd: folder,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (said += String(text)));
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
  });
  const watchdog = child.pid === undefined ? undefined : startWatchdog(child.pid, folder);
  cleanUpAfterTests(async () => {
    watchdog?.kill('SIGKILL');
    child.kill('SIGKILL');
    await exited;
    await rm(folder, { recursive: true, force: true });
  });
  const url = `postgres://postgres@${LOOPBACK}:${port}/postgres`;
  for (
    const deadline = performance.now() + 60_000;
    child.exitCode === null && performance.now() < deadline;
    await sleep(20)
  ) {
    if (await answers(url)) return url;
  }
  throw new Error(
    `PgBouncer does not accept connections. Its output and settings:\n${said}${await readFile(join(folder, 'pgbouncer.ini'), 'utf8')}`,
  );
}

async function answers(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}
