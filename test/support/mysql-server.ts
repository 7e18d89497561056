import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, createConnection, type RowDataPacket } from 'mysql2/promise';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { processGone } from './process-gone.js';
import { runFolder } from './run-folder.js';
import { startWatchdog } from './watchdog.js';

const START_TIMEOUT = 60_000;

/** Folders with programs. Debian puts the server into a folder that only the PATH of root contains. */
const FOLDERS = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin'];

function onPath(program: string): string | undefined {
  return FOLDERS.map((folder) => join(folder, program)).find((path) => existsSync(path));
}

/** A MySQL or MariaDB whose programs are on this machine. */
export interface MysqlProgram {
  readonly name: string;
  /** Starts the server, with further arguments. */
  readonly server: readonly string[];
  /** Makes the data folder whose path follows. */
  readonly install: readonly string[];
}

/** Settings of a small server, for its start and for making its data folder. */
const SMALL = ['--innodb-buffer-pool-size=24M'];

/** A setting of MariaDB. */
const SMALL_LOG = '--innodb-log-file-size=8M';

/** Only root needs to name the account: the server refuses to run as root unless it is told so. */
const ACCOUNT = process.getuid?.() === 0 ? ['--user=root'] : [];

/** MariaDB, as far as it is installed. */
export function mariadb(): MysqlProgram | undefined {
  const server = onPath('mariadbd');
  const install = onPath('mariadb-install-db');
  if (server === undefined || install === undefined) return undefined;
  const quiet = ['--auth-root-authentication-method=normal', '--skip-test-db'];
  return {
    name: 'MariaDB',
    server: [server, '--no-defaults', SMALL_LOG],
    install: [install, '--no-defaults', ...quiet, SMALL_LOG, ...SMALL, ...ACCOUNT],
  };
}

/** Returns true if there is a MariaDB; otherwise prints how to install one. */
export function hasMysql(): boolean {
  return mysqlPrograms().length > 0;
}

/** The available servers. Prints how to get one if there is none. */
export function mysqlPrograms(): MysqlProgram[] {
  const found = mariadb();
  if (!found)
    process.stderr.write(
      'Skipped: no `mariadbd` on the PATH; on Debian it is `apt-get install mariadb-server-core mariadb-client-core`.\n',
    );
  return found ? [found] : [];
}

/** The MySQL whose program `mysqld` is in this folder, with the rest of its package beside it. */
export function mysqlIn(bin: string): MysqlProgram {
  const server = [
    join(bin, 'mysqld'),
    '--no-defaults',
    `--basedir=${join(bin, '../root/usr')}`,
    '--innodb-redo-log-capacity=16M',
  ];
  return {
    name: 'MySQL',
    server: [...server, '--mysqlx=OFF', '--secure-file-priv=NULL', '--sync-binlog=1'],
    install: [...server, '--initialize-insecure', ...SMALL, ...ACCOUNT],
  };
}

/** The MariaDB in this folder. It starts on a data folder of the installed MariaDB. */
export function mariadbIn(bin: string, name: string, { install }: MysqlProgram): MysqlProgram {
  const server = [join(bin, 'mariadbd'), '--no-defaults', `--basedir=${join(bin, '../root/usr')}`, SMALL_LOG];
  return { name, server, install };
}

/**
 * The environment of a server. A MariaDB that starts removes the temporary tables in its temporary folder, also those of
 * another server.
 */
function withTemporaryFolder(folder: string): NodeJS.ProcessEnv {
  return { ...process.env, TMPDIR: folder };
}

export interface StartMysqlOptions {
  readonly program?: MysqlProgram;
  /** Settings such as `['read_only=ON']`. */
  readonly settings?: readonly string[];
  /** Size of a separate volume for the data, in MiB. Only root can make one. */
  readonly volume?: number;
}

/** Makes a data folder once in a run of the tests: that takes some seconds. */
async function installation({ name, install }: MysqlProgram): Promise<string> {
  const folder = join(runFolder(), `data-of-${name.toLowerCase().replaceAll(/\W+/g, '-')}`);
  if (!existsSync(folder)) {
    const draft = await mkdtemp(`${folder}.`);
    const [command = '', ...args] = install;
    execFileSync(command, [...args, `--datadir=${draft}`], {
      stdio: 'pipe',
      env: withTemporaryFolder(draft),
    });
    // Another worker may have made the folder first.
    await rename(draft, folder).catch(() => rm(draft, { recursive: true, force: true }));
  }
  return folder;
}

/** Starts a real MariaDB or MySQL on the loopback interface. Resolves when it accepts connections. */
export async function startMysqlServer(options: StartMysqlOptions = {}): Promise<MysqlServer> {
  const program = options.program ?? mariadb();
  if (!program) throw new Error('there is no `mariadbd` on the PATH');
  const folder = await mkdtemp(join(tmpdir(), 'mysql-test-'));
  const server = new MysqlServer(await freePort(), folder, program, options);
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
 * A MariaDB or MySQL of one test. It ends after the test file at the latest; a watchdog ends it when the test process is
 * killed.
 */
export class MysqlServer {
  readonly host = LOOPBACK;
  readonly user = 'app';
  readonly password = 'secret';
  readonly database = 'app';
  readonly #clients = new Set<Connection>();
  readonly #forget: () => void;
  #process: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();

  constructor(
    readonly port: number,
    readonly folder: string,
    private readonly program: MysqlProgram,
    private readonly options: StartMysqlOptions,
  ) {
    this.#forget = cleanUpAfterTests(() => this.stop());
  }

  get uri(): string {
    return this.uriOf(this.user);
  }

  uriOf(user: string, database = this.database, port = this.port): string {
    return `mysql://${user}:${this.password}@${this.host}:${port}/${database}`;
  }

  get pid(): number {
    if (this.#process?.pid === undefined) throw new Error('this server is not running');
    return this.#process.pid;
  }

  /** Makes the data folder of the server. */
  async prepare(): Promise<void> {
    const made = await installation(this.program);
    await mkdir(this.data);
    const { volume } = this.options;
    if (volume !== undefined)
      execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${volume}m`, 'tmpfs', this.data]);
    execFileSync('cp', ['-a', `${made}/.`, this.data]);
    // MySQL's name of the server, which makes a new one: a replica and its primary need different names.
    await rm(join(this.data, 'auto.cnf'), { force: true });
    const statements = [
      `create database if not exists ${this.database};`,
      `create user if not exists '${this.user}'@'%' identified by '${this.password}';`,
      `grant all privileges on *.* to '${this.user}'@'%' with grant option;`,
    ];
    await writeFile(this.#initFile, `${statements.join('\n')}\n`);
  }

  async start(): Promise<void> {
    if (this.#process) return;
    const log = openSync(join(this.folder, 'server.log'), 'a');
    const [command = '', ...args] = this.program.server;
    const settings = [
      ...[`datadir=${this.data}`, `port=${this.port}`, `bind-address=${this.host}`, 'skip-name-resolve'],
      ...[`socket=${join(this.folder, 'socket')}`, `pid-file=${join(this.folder, 'pid')}`],
      ...[`init-file=${this.#initFile}`, 'performance-schema=OFF', ...(this.options.settings ?? [])],
    ];
    const child = spawn(command, [...args, ...ACCOUNT, ...SMALL, ...settings.map((each) => `--${each}`)], {
      cwd: this.folder,
      detached: true,
      stdio: ['ignore', log, log],
      env: withTemporaryFolder(this.folder),
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
    const said = await readFile(join(this.folder, 'server.log'), 'utf8');
    throw new Error(`${this.program.name} does not accept connections. Its log:\n${said}`);
  }

  /** Sends SIGKILL, as in a crash. Resolves when the server has ended. */
  async kill(): Promise<void> {
    const process = this.#process;
    if (!process?.pid) return;
    process.ref();
    const { pid } = process;
    process.kill('SIGKILL');
    await this.#exited;
    await processGone(pid);
  }

  /** Sends SIGSTOP: connections stay open, and the kernel accepts new ones, but the server answers nothing. */
  pause(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** Kills the server, and starts a new one with the same data. Committed data is there again. */
  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  async stop(): Promise<void> {
    this.#forget();
    for (const client of this.#clients) client.destroy();
    this.#clients.clear();
    await this.kill();
    if (this.options.volume !== undefined) execFileSync('umount', ['-l', this.data]);
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Opens a connection for the test itself; `stop()` closes it. */
  async client(uri = this.uri): Promise<Connection> {
    const client = await createConnection({ uri, multipleStatements: true });
    // Without a listener, the end of the server would be an uncaught error.
    client.on('error', () => undefined);
    this.#clients.add(client);
    return client;
  }

  /** Runs a query, and resolves to the first column of its first row. */
  async value(sql: string): Promise<unknown> {
    return ((await this.query(sql)) as unknown[][])[0]?.[0];
  }

  /** Runs statements on a connection of their own, and resolves to their rows. */
  async query(sql: string): Promise<unknown> {
    const client = await this.client();
    try {
      const [rows] = await client.query<RowDataPacket[]>({ sql, rowsAsArray: true });
      return rows;
    } finally {
      this.#clients.delete(client);
      client.destroy();
    }
  }

  /** Runs a script with the program `mariadb`, as an administrator does. */
  script(sql: string): void {
    const args = ['--no-defaults', `--host=${this.host}`, `--port=${this.port}`, `--user=${this.user}`];
    execFileSync('mariadb', [...args, `--password=${this.password}`, this.database], {
      input: sql,
      stdio: 'pipe',
    });
  }

  get data(): string {
    return join(this.folder, 'data');
  }

  get #initFile(): string {
    return join(this.folder, 'init.sql');
  }

  async #answers(): Promise<boolean> {
    try {
      return (await this.value('select 1')) === 1;
    } catch {
      return false;
    }
  }
}
