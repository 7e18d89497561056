import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { createConnection } from 'mysql2/promise';
import { freePort } from './free-port.js';
import { guardDirectory } from './orphan-guard.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

/** Advice for a machine without MariaDB. No npm package has one. */
export const HOW_TO_GET_MARIADB =
  'There is no MariaDB on the PATH: install one (Debian, Ubuntu: apt-get install mariadb-server; ' +
  'others: https://mariadb.org/download)';

/** A MariaDB with its data directory and its address. It can start again after a crash. */
export interface PreparedMariadb {
  readonly url: string;
  launch(): ServerProcess;
}

/** Settings of a small server. */
const SMALL = ['--no-defaults', '--innodb-buffer-pool-size=24M', '--innodb-log-file-size=8M'];

/** Only root needs to name the account: the server refuses to run as root unless it is told so. */
const ACCOUNT = process.getuid?.() === 0 ? ['--user=root'] : [];

/**
 * Starts the MariaDB of the PATH on the loopback interface.
 *
 * @returns the server's URL and description
 * @throws Error that says how to install MariaDB
 */
export async function startMariadb(stops: StopList): Promise<{ url: string; description: string }> {
  const version = await mariadbOnPath();
  if (version === undefined) throw new Error(`${HOW_TO_GET_MARIADB}, or set MYSQL_URL.`);
  const { url, launch } = await prepareMariadb(stops);
  const server = launch();
  await stops.add(() => server.stop());
  await server.whenReady(() => acceptsConnections(url));
  return { url, description: `MariaDB ${version} from the PATH` };
}

/** Makes the data of a MariaDB in a temporary directory, which is removed at the end. */
export async function prepareMariadb(stops: StopList): Promise<PreparedMariadb> {
  const directory = await mkdtemp(join(tmpdir(), 'batch-demo-mariadb-'));
  guardDirectory(directory);
  await stops.add(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  // A MariaDB that starts removes the temporary tables in its temporary folder, also those of another server.
  const options = { cwd: directory, env: { ...process.env, PATH: searched(), TMPDIR: directory } };
  const data = join(directory, 'data');
  const install = new ServerProcess(
    'mariadb-install-db',
    'mariadb-install-db',
    [...SMALL, `--datadir=${data}`, '--skip-test-db', ...ACCOUNT],
    options,
  );
  // This script starts a server for some seconds, which a signal to the script would leave running.
  await stops.add(() => install.ended);
  await install.ended;
  if (install.exitCode !== 0)
    throw new Error(`The MariaDB of the PATH cannot run here; set MYSQL_URL. It said:\n${install.output}`);

  const password = randomBytes(16).toString('hex');
  const accounts = join(directory, 'accounts.sql');
  const statements = [
    'create database if not exists locks;',
    `create user if not exists locks@'%' identified by '${password}';`,
    "grant all privileges on locks.* to locks@'%';",
  ];
  await writeFile(accounts, `${statements.join('\n')}\n`, { mode: 0o600 });
  const port = await freePort();
  const files = [`--datadir=${data}`, `--socket=${join(directory, 'socket')}`, `--init-file=${accounts}`];
  const args = [...SMALL, ...ACCOUNT, ...files, `--port=${port}`, '--bind-address=127.0.0.1'];
  return {
    url: `mysql://locks:${password}@127.0.0.1:${port}/locks`,
    launch: () => new ServerProcess('MariaDB', 'mariadbd', args, options),
  };
}

/** Returns the version of the `mariadbd` on the PATH; `undefined` without one. */
export async function mariadbOnPath(): Promise<string | undefined> {
  try {
    const env = { ...process.env, PATH: searched() };
    const { stdout } = await promisify(execFile)('mariadbd', ['--version'], { env });
    return /Ver (\d[\d.]*)/.exec(stdout)?.[1] ?? '';
  } catch {
    return undefined;
  }
}

/** The PATH, and the folder into which Debian puts the server. Only the PATH of root contains that. */
function searched(): string {
  return [process.env['PATH'] ?? '', '/usr/sbin'].join(delimiter);
}

/** Resolves to true if the server accepts a connection; for `whenReady`. */
export async function acceptsConnections(url: string): Promise<true | undefined> {
  try {
    const connection = await createConnection(url);
    // Without a listener, a connection that breaks while it is being closed would be an uncaught error.
    connection.on('error', () => undefined);
    connection.destroy();
    return true;
  } catch {
    return undefined;
  }
}
