import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { ping } from './redis-ping.js';
import { startWatchdog } from './watchdog.js';

export interface StartRedisOptions {
  /**
   * Further arguments of redis-server, such as `['--appendonly', 'yes']`. They override the arguments that
   * {@link RedisServer} sets.
   */
  readonly args?: readonly string[];
  /** Content of a configuration file. A Sentinel needs such a file, as it writes to it. */
  readonly config?: string;
  /**
   * Port of the server; by default a free port. If another process takes the free port before the server listens, the
   * server gets another free port.
   */
  readonly port?: number;
  /** Milliseconds until the server must answer PING. */
  readonly startTimeout?: number;
  /** Further environment variables. */
  readonly env?: NodeJS.ProcessEnv;
}

/** The server confirms a write when it is on disk, so that a restart forgets no lock (S13). */
export const DURABLE: StartRedisOptions = { args: ['--appendonly', 'yes', '--appendfsync', 'always'] };

const START_TIMEOUT = 60_000;
const PORT_ATTEMPTS = 5;

class PortTakenError extends Error {}

/** Version of the tested `redis-server`, such as 7.2. A Valkey reports its own version. */
export function redisVersion(): number {
  const [, version] =
    /v=(\d+\.\d+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' })) ?? [];
  if (version === undefined) throw new Error('redis-server does not say which version it is');
  return Number(version);
}

/** Starts one real redis-server on the loopback interface. Resolves when it answers PING. */
export async function startRedis(options: StartRedisOptions = {}): Promise<RedisServer> {
  for (let attempt = 1; ; attempt++) {
    const server = new RedisServer(options.port ?? (await freePort()), options);
    try {
      await server.start();
      return server;
    } catch (error) {
      await server.stop();
      if (!(error instanceof PortTakenError) || options.port !== undefined || attempt === PORT_ATTEMPTS) {
        throw error;
      }
    }
  }
}

/** Starts `count` independent servers at the same time. */
export async function startRedisNodes(
  count: number,
  options: StartRedisOptions = {},
): Promise<RedisServer[]> {
  const results = await Promise.allSettled(Array.from({ length: count }, () => startRedis(options)));
  const failed = results.find((result) => result.status === 'rejected');
  const servers = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  if (failed) {
    await Promise.all(servers.map((server) => server.stop()));
    throw failed.reason;
  }
  return servers;
}

/**
 * A redis-server of one test. It ends after the test file at the latest; a watchdog ends it when the test process is
 * killed.
 */
export class RedisServer {
  readonly host = LOOPBACK;
  private process: ChildProcess | undefined;
  private exited: Promise<void> = Promise.resolve();
  private directory: string | undefined;
  private readonly clients = new Set<Redis>();
  private readonly forget: () => void;

  constructor(
    readonly port: number,
    private readonly options: StartRedisOptions,
  ) {
    this.forget = cleanUpAfterTests(() => this.stop());
  }

  get url(): string {
    return `redis://${this.host}:${this.port}`;
  }

  /** Current process id, which changes with a restart. */
  get pid(): number {
    if (this.process?.pid === undefined) {
      throw new Error(`the redis-server on port ${this.port} is not running`);
    }
    return this.process.pid;
  }

  get running(): boolean {
    return this.process !== undefined;
  }

  /** Working directory of the server. `kill()` and `restart()` keep it, `stop()` removes it. */
  get workingDirectory(): string {
    if (this.directory === undefined) {
      throw new Error(`the redis-server on port ${this.port} is stopped`);
    }
    return this.directory;
  }

  /**
   * Starts the server unless it runs. A server that was killed gets its port and its directory again.
   *
   * @throws PortTakenError if the port is taken. A new server makes only one attempt, because its caller can choose
   * another port.
   */
  async start(): Promise<void> {
    const attempts = this.directory === undefined ? 1 : PORT_ATTEMPTS;
    for (let attempt = 1; !this.process; attempt++) {
      this.directory ??= await mkdtemp(join(tmpdir(), 'redis-test-'));
      await rm(pidFile(this.directory), { force: true });
      this.launch(this.directory);
      try {
        await this.waitUntilReady(this.directory);
      } catch (error) {
        if (!(error instanceof PortTakenError) || attempt === attempts) throw error;
        await sleep(100);
      }
    }
  }

  /** Sends SIGKILL, as in a crash: the server writes nothing more to disk and closes no connection. */
  async kill(): Promise<void> {
    // Without a reference to the process, Node would end a script that waits for nothing else.
    this.process?.ref();
    this.process?.kill('SIGKILL');
    await this.exited;
  }

  /** Sends SIGSTOP: connections stay open, and the kernel accepts new ones, but the server answers nothing. */
  pause(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  /** Sends SIGCONT: the server now executes the commands that have arrived meanwhile. */
  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /**
   * Kills the server if it runs, and starts a new one on the same port, with the same arguments and directory. Its data
   * is gone unless it was started with persistence.
   */
  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  /** Ends the server and its clients, and removes its directory. May be called more than once. */
  async stop(): Promise<void> {
    this.forget();
    for (const client of this.clients) {
      client.disconnect();
    }
    this.clients.clear();
    await this.kill();
    if (this.directory !== undefined) {
      // A child process of the killed server may still write a file for a moment.
      await rm(this.directory, { recursive: true, force: true, maxRetries: 5 });
      this.directory = undefined;
    }
  }

  /** Opens a client for the test itself; `stop()` closes it. It reconnects quickly after `restart()`. */
  client(options: RedisOptions = {}): Redis {
    const { host, port } = this;
    // Jest waits for a timer of this length, which ioredis leaves running when it disconnects a closed connection.
    const disconnectTimeout = 100;
    const client = new Redis({ host, port, disconnectTimeout, retryStrategy: () => 50, ...options });
    // Without a listener, ioredis prints each refused connection while the server is down.
    client.on('error', () => undefined);
    this.clients.add(client);
    client.once('end', () => this.clients.delete(client));
    return client;
  }

  private launch(directory: string): void {
    const log = openSync(join(directory, 'redis.log'), 'w');
    const { config } = this.options;
    const args = config === undefined ? [] : [configFile(directory, config)];
    args.push('--bind', this.host, '--port', String(this.port), '--dir', directory);
    args.push('--pidfile', pidFile(directory));
    args.push('--save', '', '--appendonly', 'no', ...(this.options.args ?? []));
    // The process has its own session: Ctrl-C in the terminal reaches only Jest, also when the server is paused.
    const env = { ...process.env, ...this.options.env };
    const child = spawn('redis-server', args, { detached: true, stdio: ['ignore', log, log], env });
    closeSync(log);
    child.unref();
    this.process = child;
    const watchdog = child.pid === undefined ? undefined : startWatchdog(child.pid, directory);
    this.exited = new Promise((resolve) => {
      const ended = () => {
        watchdog?.kill('SIGKILL');
        this.process = undefined;
        resolve();
      };
      child.once('exit', ended);
      child.once('error', ended);
    });
  }

  private async waitUntilReady(directory: string): Promise<void> {
    const timeout = this.options.startTimeout ?? START_TIMEOUT;
    const deadline = performance.now() + timeout;
    while (this.process?.pid !== undefined) {
      // An answer alone does not show that our server has the port: another process may have taken it. Our server
      // writes its pid file after it has got the port.
      if (existsSync(pidFile(directory)) && (await ping(this.host, this.port))) {
        return;
      }
      if (performance.now() > deadline) {
        await this.kill();
        throw new Error(`redis-server did not answer PING on port ${this.port} within ${timeout} ms`);
      }
      await sleep(10);
    }
    const log = await readFile(join(directory, 'redis.log'), 'utf8');
    if (/address already in use/i.test(log)) {
      throw new PortTakenError(`port ${this.port} is taken`);
    }
    throw new Error(
      `redis-server ended at once; is it installed and are the arguments right? Its log:\n${log}`,
    );
  }
}

/** Writes the file once: `restart()` keeps what the server has added. */
function configFile(directory: string, content: string): string {
  const path = join(directory, 'redis.conf');
  if (!existsSync(path)) writeFileSync(path, content);
  return path;
}

function pidFile(directory: string): string {
  return join(directory, 'redis.pid');
}
