import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { holdersWithoutRecord, ownersOfLocks } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { type FaultEvent, machineTime } from './events.js';
import { FaultClient } from './fault-client.js';
import { judge, type Verdict } from './judge.js';
import { RegisterClient } from './register-client.js';
import type { WorkerOptions } from './worker.js';

/** How long a lock that nobody holds may stay on a node that can be reached, in milliseconds. */
const ORPHAN_GRACE_MS = 1_500;

export interface StageOptions {
  readonly nodes: number;
  readonly nodeArgs?: readonly string[];
  /** Environment variables of the first node. */
  readonly firstNodeEnv?: NodeJS.ProcessEnv;
  /** Puts a proxy in front of every node. */
  readonly proxies?: boolean;
}

/** What clients are told to do; see `WorkerOptions`. */
export interface ClientOptions extends Partial<
  Omit<WorkerOptions, 'client' | 'log' | 'registerPort' | 'module' | 'retry'>
> {
  readonly retry?: Partial<WorkerOptions['retry']>;
  readonly module?: Partial<WorkerOptions['module']>;
}

/** What a fault test found. */
export interface Outcome extends Verdict {
  /** Locks that were left on the nodes when nobody held any. */
  readonly orphans: readonly string[];
  /** Acquisitions for each second from the first one on. */
  readonly rate: number;
  readonly events: readonly FaultEvent[];
}

/** Servers, proxies, the register and the clients of one fault test. */
export class Stage {
  readonly servers: readonly RedisServer[];
  readonly proxies: readonly TcpProxy[];
  readonly clients: FaultClient[] = [];
  readonly #furtherProxies: TcpProxy[] = [];
  readonly #forget = cleanUpAfterTests(() => this.close());
  #register: RegisterClient | undefined;
  #named = 0;

  private constructor(
    servers: readonly RedisServer[],
    proxies: readonly TcpProxy[],
    private readonly directory: string,
    private readonly programs: string,
    private readonly registerProcess: ChildProcess,
    private readonly registerPort: number,
  ) {
    this.servers = servers;
    this.proxies = proxies;
  }

  /** @param programs - the folder that `bundle` made of `PROGRAMS` */
  static async set(
    programs: string,
    { nodes, nodeArgs: args = [], firstNodeEnv: env = {}, proxies }: StageOptions,
  ): Promise<Stage> {
    const servers = [
      ...(await startRedisNodes(1, { args, env })),
      ...(await startRedisNodes(nodes - 1, { args })),
    ];
    const inFront = proxies ? await Promise.all(servers.map((server) => startTcpProxy(server))) : [];
    const directory = await mkdtemp(join(tmpdir(), 'fault-clients-'));
    const register = spawn(process.execPath, [join(programs, 'register.js')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const [port] = (await once(register.stdout, 'data')) as [Buffer];
    return new Stage(servers, inFront, directory, programs, register, Number(port.toString()));
  }

  /** Where clients find the nodes: at the proxies, if there are any. */
  get urls(): string[] {
    return (this.proxies.length > 0 ? this.proxies : this.servers).map(({ url }) => url);
  }

  /** One more proxy in front of a node, for a client of which this connection is to be different. */
  async proxyTo(node: number): Promise<TcpProxy> {
    const proxy = await startTcpProxy(this.servers[node]!);
    this.#furtherProxies.push(proxy);
    return proxy;
  }

  /** Starts client processes; resolves when all are connected. They wait to be told to `go`. */
  async startClients(
    count: number,
    { module, retry, ...options }: ClientOptions = {},
  ): Promise<FaultClient[]> {
    const clients: FaultClient[] = [];
    for (let i = 0; i < count; i++) {
      const client = `c${this.#named++}`;
      const folder = join(this.directory, client);
      await mkdir(folder);
      const started = new FaultClient(this.programs, {
        client,
        log: join(folder, 'events.jsonl'),
        registerPort: this.registerPort,
        wants: [{ keys: ['k'] }],
        ttl: 2_000,
        renew: true,
        hold: 20,
        leastHold: 0,
        rest: 0,
        loops: 1,
        passesIn: false,
        ...options,
        // Ten clients that poll much more often than this mostly split the votes between them.
        retry: { timeout: 5_000, delay: 30, jitter: 80, ...retry },
        module: { nodes: this.urls, nodeTimeout: 100, restartGuard: false, owner: client, ...module },
      });
      this.clients.push(started);
      clients.push(started);
    }
    await Promise.all(clients.map((client) => client.has('ready')));
    return clients;
  }

  /** Tells clients to lock, over and over. */
  go(clients: readonly FaultClient[] = this.clients): void {
    for (const client of clients) client.tell('go');
  }

  /** Everything that the clients have written down so far. */
  async events(): Promise<FaultEvent[]> {
    return (await Promise.all(this.clients.map((client) => client.events()))).flat();
  }

  /** Waits until the lock has been acquired so many times in all. */
  async acquired(times: number, within = 60_000): Promise<void> {
    const enough = async (): Promise<boolean> =>
      (await this.events()).filter(({ event }) => event === 'return').length >= times;
    await until(enough, within).catch((error: unknown) => {
      throw new Error(`the lock was not acquired ${times} times in ${within} ms`, { cause: error });
    });
  }

  /** Waits until some client holds the lock, and says which. */
  async holder(): Promise<FaultClient> {
    let found: FaultClient | undefined;
    await until(async () => {
      for (const client of this.clients) {
        if (!client.killed && (await client.holds())) found = client;
      }
      return found !== undefined;
    }, 60_000);
    return found!;
  }

  /** Ends the clients, looks for what they left behind, and judges what they did. All faults must have ended. */
  async end(): Promise<Outcome> {
    const alive = this.clients.filter(({ killed, quitting }) => !killed && !quitting);
    const end = machineTime();
    for (const client of alive) client.tell('stop');
    await Promise.all(alive.map((client) => client.has('idle')));
    const orphans = await this.#orphans();
    await Promise.all(alive.map((client) => client.quit()));
    this.#register ??= await RegisterClient.open(this.registerPort);
    const register = await this.#register.report();
    const events = await this.events();
    const killed = new Set(this.clients.filter((client) => client.killed).map(({ name }) => name));
    const returns = events.filter(({ event }) => event === 'return').map(({ at }) => at);
    const seconds = (end - Math.min(...returns)) / 1_000;
    return {
      ...judge(events, register, machineTime(), killed),
      orphans,
      rate: returns.length === 0 ? 0 : returns.length / seconds,
      events,
    };
  }

  async close(): Promise<void> {
    this.#forget();
    this.#register?.close();
    this.registerProcess.kill('SIGKILL');
    await Promise.all(this.clients.map((client) => client.kill()));
    await Promise.all([...this.proxies, ...this.#furtherProxies].map((proxy) => proxy.close()));
    await Promise.all(this.servers.map((server) => server.stop()));
    await rm(this.directory, { recursive: true, force: true });
  }

  /** The clients are still there to give back late what they could not give back in time. */
  async #orphans(): Promise<string[]> {
    const lookers = this.servers.map((server) => server.client());
    const deadline = machineTime() + ORPHAN_GRACE_MS;
    for (;;) {
      const looked = machineTime();
      const owners = await Promise.all(lookers.map(ownersOfLocks));
      const left = owners.flatMap((each, node) => each.map((owner) => ({ owner, node })));
      const orphans = left.filter(({ owner }) => looked > deadline + this.#timeToEnd(owner));
      if (left.length === 0 || orphans.length > 0) {
        const stray = await Promise.all(lookers.map(holdersWithoutRecord));
        return [
          ...orphans.map(({ owner, node }) => `of ${owner} on node ${node}`),
          ...stray.flatMap((each, node) =>
            each.map((holder) => `${holder} on node ${node}, without a record`),
          ),
        ];
      }
      await sleep(20);
    }
  }

  /** A killed process releases nothing. A command that it sent before may restart the ttl when a node executes it. */
  #timeToEnd(owner: string): number {
    const client = this.clients.find(({ name }) => name === owner);
    return client?.killed ? client.ttl : 0;
  }
}
