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
  /** Arguments for redis-server, after ours, so that they win: `['--appendonly', 'yes']`. */
  readonly args?: readonly string[];
  /** A configuration file of its own, which a Sentinel needs, as it writes to it. */
  readonly config?: string;
  /** A fixed port. Without it a free one is found, and another one if somebody else was quicker. */
  readonly port?: number;
  /** Time limit in ms until the server answers PING. */
  readonly startTimeout?: number;
  /** Environment variables beside our own. */
  readonly env?: NodeJS.ProcessEnv;
}

/** Every write is on disk before it is confirmed, so that a restart forgets no lock (S13). */
export const DURABLE: StartRedisOptions = { args: ['--appendonly', 'yes', '--appendfsync', 'always'] };

const START_TIMEOUT = 60_000;
const PORT_ATTEMPTS = 5;

class PortTakenError extends Error {}

/** Of the `redis-server` that is tested, such as 7.2; of a Valkey the version of its own. */
export function redisVersion(): number {
  const [, version] =
    /v=(\d+\.\d+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' })) ?? [];
  if (version === undefined) throw new Error('redis-server does not say which version it is');
  return Number(version);
}

/** Starts one real redis-server on the loopback interface; resolves when it answers PING. */
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

/** `count` independent servers, started at the same time. */
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
 * A redis-server process that belongs to the test that started it. It is stopped after the test file at the
 * latest, and a watchdog ends it when the test process itself is killed.
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

  /** The process id now; another one after `restart()`. */
  get pid(): number {
    if (this.process?.pid === undefined) {
      throw new Error(`the redis-server on port ${this.port} is not running`);
    }
    return this.process.pid;
  }

  get running(): boolean {
    return this.process !== undefined;
  }

  /** The server's working directory: kept by `kill()` and `restart()`, removed by `stop()`. */
  get workingDirectory(): string {
    if (this.directory === undefined) {
      throw new Error(`the redis-server on port ${this.port} is stopped`);
    }
    return this.directory;
  }

  /**
   * Starts the server if it does not run: after `kill()` on the same port and in the same directory.
   *
   * @throws PortTakenError at once for a new server, which can have another port
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

  /** SIGKILL, as in a crash: nothing is flushed, no connection is closed politely. */
  async kill(): Promise<void> {
    this.process?.ref(); // so that a script that only waits for this does not end before it
    this.process?.kill('SIGKILL');
    await this.exited;
  }

  /** SIGSTOP: connections stay open, the kernel still accepts new ones, nothing is answered. */
  pause(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  /** SIGCONT: everything sent in the meantime is executed now. */
  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /**
   * Kills the server if it runs and starts it again on the same port, with the same arguments and in the same
   * directory: its data is gone unless it was started with persistence.
   */
  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  /** Ends the server and its clients and removes its directory. May be called more than once. */
  async stop(): Promise<void> {
    this.forget();
    for (const client of this.clients) {
      client.disconnect();
    }
    this.clients.clear();
    await this.kill();
    if (this.directory !== undefined) {
      // A child of the killed server, which writes a file for it, may still be there for a moment.
      await rm(this.directory, { recursive: true, force: true, maxRetries: 5 });
      this.directory = undefined;
    }
  }

  /** A client to look at the server with; closed by `stop()`. It reconnects quickly after `restart()`. */
  client(options: RedisOptions = {}): Redis {
    const { host, port } = this;
    // ioredis leaves a timer of this length behind when it disconnects what is closed already; Jest waits for it.
    const disconnectTimeout = 100;
    const client = new Redis({ host, port, disconnectTimeout, retryStrategy: () => 50, ...options });
    // Without a listener ioredis prints every refused connection while the server is down on purpose.
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
    // In a session of its own, so that Ctrl-C in the terminal reaches Jest alone, also when the server is paused.
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
      // The port may belong to somebody else's server, started a moment before ours, which answers just as well.
      // Ours writes its pid file only once it has the port.
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
      `redis-server ended at once; is it installed and are the arguments right? It said:\n${log}`,
    );
  }
}

/** Written once: what the server added to it is kept by `restart()`. */
function configFile(directory: string, content: string): string {
  const path = join(directory, 'redis.conf');
  if (!existsSync(path)) writeFileSync(path, content);
  return path;
}

function pidFile(directory: string): string {
  return join(directory, 'redis.pid');
}
