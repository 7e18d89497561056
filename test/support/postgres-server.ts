import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { lchown, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import {
  type Account,
  giveTo,
  locateBinaries,
  prepareBinaries,
  unprivilegedAccount,
} from '../../sample-app/demo/embedded-postgres.js';
import { descendantsOf } from './descendants.js';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { processGone } from './process-gone.js';
import { runFolder } from './run-folder.js';
import { startWatchdog } from './watchdog.js';

const START_TIMEOUT = 60_000;

/** Folder in which Debian has a folder for each installed version of PostgreSQL. */
const DEBIAN = '/usr/lib/postgresql';

/** Lists the PostgreSQL programs of Debian. Tests use those of `embedded-postgres`, if they do not say otherwise. */
export async function debianPostgres(): Promise<{ readonly name: string; readonly bin: string }[]> {
  const versions = await readdir(DEBIAN).catch(() => []);
  return versions.map((version) => ({
    name: `PostgreSQL ${version} of Debian`,
    bin: join(DEBIAN, version, 'bin'),
  }));
}

export interface StartPostgresOptions {
  /** Folder of the programs; by default those of `embedded-postgres`. */
  readonly bin?: string | undefined;
  /** Settings such as `['synchronous_commit=off']`. */
  readonly settings?: readonly string[];
  /** A stopped server, whose data folder is copied. */
  readonly copyOf?: PostgresServer;
  /** Size of a separate volume for the data, in MiB. Only root can make one. */
  readonly volume?: number;
  /** Starts as a standby without a primary: it accepts connections and no writes. */
  readonly standby?: boolean;
}

/** Programs of PostgreSQL, and a new data folder that servers copy. */
interface Installation {
  readonly bin: string;
  readonly data: string;
}

/**
 * Makes the installation once in a run of the tests: `initdb` takes a second or two, and the tests start thirty
 * servers.
 */
async function installation(bin: string | undefined, account: Account | undefined): Promise<Installation> {
  const run = runFolder();
  const folder = join(run, bin === undefined ? 'postgres' : `postgres${bin.replaceAll('/', '-')}`);
  const programs = bin ?? join(folder, 'native', 'bin');
  if (!existsSync(folder)) {
    const draft = await mkdtemp(`${folder}.`);
    if (bin === undefined) await prepareBinaries(draft, await locateBinaries());
    if (account) {
      await lchown(run, account.uid, account.gid);
      await giveTo(account, draft);
    }
    const initdb = join(bin ?? join(draft, 'native', 'bin'), 'initdb');
    const args = ['-U', 'postgres', '-A', 'trust', '--no-sync', '--locale=C', '-E', 'UTF8'];
    execFileSync(initdb, ['-D', join(draft, 'data'), ...args], { ...account, cwd: draft, stdio: 'pipe' });
    // Another worker may have made the folder first.
    await rename(draft, folder).catch(() => rm(draft, { recursive: true, force: true }));
  }
  return { bin: programs, data: join(folder, 'data') };
}

/** Starts a real PostgreSQL on the loopback interface. Resolves when it accepts connections. */
export async function startPostgresServer(options: StartPostgresOptions = {}): Promise<PostgresServer> {
  const folder = await mkdtemp(join(tmpdir(), 'postgres-test-'));
  const server = new PostgresServer(await freePort(), folder, options);
  try {
    await server.prepare();
    await server.start();
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

/**
 * A PostgreSQL of one test. It ends after the test file at the latest; a watchdog ends it when the test process is
 * killed. PostgreSQL refuses to run as root, so root runs it as `nobody`.
 */
export class PostgresServer {
  readonly host = LOOPBACK;
  readonly #clients = new Set<Client>();
  readonly #forget: () => void;
  readonly #account: Account | undefined = unprivilegedAccount();
  #bin = '';
  #process: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();

  constructor(
    readonly port: number,
    readonly folder: string,
    private readonly options: StartPostgresOptions,
  ) {
    this.#forget = cleanUpAfterTests(() => this.stop());
  }

  get url(): string {
    return this.urlOf('postgres');
  }

  urlOf(user: string, database = 'postgres'): string {
    return `postgres://${user}@${this.host}:${this.port}/${database}`;
  }

  get data(): string {
    return join(this.folder, 'data');
  }

  get pid(): number {
    if (this.#process?.pid === undefined) throw new Error('this PostgreSQL is not running');
    return this.#process.pid;
  }

  /** Makes the data folder of the server. */
  async prepare(): Promise<void> {
    const { copyOf, standby, volume } = this.options;
    const made = await installation(this.options.bin, this.#account);
    this.#bin = made.bin;
    await mkdir(this.data);
    if (volume !== undefined)
      execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${volume}m`, 'tmpfs', this.data]);
    // The copy must keep owners and permissions, or PostgreSQL does not start.
    execFileSync('cp', ['-a', `${copyOf?.data ?? made.data}/.`, this.data]);
    await rm(join(this.data, 'postmaster.pid'), { force: true });
    if (standby) await writeFile(join(this.data, 'standby.signal'), '');
    if (this.#account) await lchown(this.folder, this.#account.uid, this.#account.gid);
  }

  async start(): Promise<void> {
    if (this.#process) return;
    const log = openSync(join(this.folder, 'postgres.log'), 'a');
    const settings = [
      ...['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'shared_buffers=16MB'],
      ...['max_wal_size=64MB', 'log_min_messages=warning', ...(this.options.settings ?? [])],
    ];
    const args = ['-D', this.data, '-p', String(this.port), ...settings.flatMap((each) => ['-c', each])];
    const child = spawn(join(this.#bin, 'postgres'), args, {
      ...this.#account,
      cwd: this.folder,
      detached: true,
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    child.unref();
    this.#process = child;
    const watchdog = child.pid === undefined ? undefined : startWatchdog(child.pid, this.folder);
    this.#exited = new Promise((resolve) => {
      const ended = (): void => {
        watchdog?.kill('SIGKILL');
        this.#process = undefined;
        resolve();
      };
      child.once('exit', ended);
      child.once('error', ended);
    });
    const deadline = performance.now() + START_TIMEOUT;
    while (this.#process) {
      if (await this.#answers()) return;
      if (performance.now() > deadline) break;
      await sleep(20);
    }
    const said = await readFile(join(this.folder, 'postgres.log'), 'utf8');
    throw new Error(`PostgreSQL does not accept connections. Its log:\n${said}`);
  }

  /**
   * Sends SIGKILL to all processes of the server, as in a crash. Resolves when all of them have ended: a new server does
   * not start while a process of the old one still has the shared memory.
   */
  async kill(): Promise<void> {
    const process = this.#process;
    if (!process?.pid) return;
    process.ref();
    const all = this.#stopAll();
    for (const pid of all) signal(pid, 'SIGKILL');
    await this.#exited;
    await Promise.all(all.map((pid) => processGone(pid)));
  }

  /**
   * Sends SIGSTOP to all processes of the server: connections stay open, and the kernel accepts new ones, but the server
   * answers nothing.
   */
  pause(): void {
    this.#stopAll();
  }

  resume(): void {
    for (const pid of [this.pid, ...descendantsOf(this.pid)]) signal(pid, 'SIGCONT');
  }

  /** Kills the server, and starts a new one with the same data. Committed data is there again. */
  async restart(): Promise<void> {
    await this.kill();
    await rm(join(this.data, 'postmaster.pid'), { force: true });
    await this.start();
  }

  /** Shuts the server down without a crash, and keeps its folder. */
  async shutDown(): Promise<void> {
    await this.#endClients();
    this.#process?.kill('SIGINT');
    await this.#exited;
  }

  async stop(): Promise<void> {
    this.#forget();
    // The clients of a paused server can end only after the server is killed.
    await Promise.all([this.#endClients(), this.kill()]);
    if (this.options.volume !== undefined) execFileSync('umount', ['-l', this.data]);
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Opens a connection for the test itself; `stop()` closes it. */
  async client(url = this.url): Promise<Client> {
    const client = new Client({ connectionString: url });
    // Without a listener, the end of the server would be an uncaught error.
    client.on('error', () => undefined);
    await client.connect();
    this.#clients.add(client);
    return client;
  }

  /**
   * Sends SIGSTOP to all processes of the server, and lists them. The first process is stopped before the list is made,
   * so that it can start no further process.
   */
  #stopAll(): number[] {
    const first = this.pid;
    signal(first, 'SIGSTOP');
    const others = descendantsOf(first);
    for (const pid of others) signal(pid, 'SIGSTOP');
    return [first, ...others];
  }

  async #endClients(): Promise<void> {
    await Promise.all([...this.#clients].map((client) => client.end().catch(() => undefined)));
    this.#clients.clear();
  }

  async #answers(): Promise<boolean> {
    const client = new Client({ connectionString: this.url, connectionTimeoutMillis: 2_000 });
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
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
