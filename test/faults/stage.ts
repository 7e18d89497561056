import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { holdersWithoutRecord, ownersOfLocks } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { type Deployment, type DeploymentKind, isMaster, startDeployment } from './deployments.js';
import { type FaultEvent, machineTime } from './events.js';
import { FaultClient } from './fault-client.js';
import { judge, stalledBetween, type Verdict } from './judge.js';
import type { Target } from './passed-in.js';
import { RegisterClient } from './register-client.js';
import type { WorkerOptions } from './worker.js';

/**
 * Longest time that a lock may stay on a node without a holder, in milliseconds. Stalls of the process that acquired
 * the lock do not count.
 */
const ORPHAN_GRACE_MS = 1_500;

export interface StageOptions {
  /** Number of nodes. */
  readonly nodes: number;
  /** Kind of each node; a single server by default. The options below apply to single servers only. */
  readonly each?: DeploymentKind;
  readonly nodeArgs?: readonly string[];
  /** Environment variables of the first node. */
  readonly firstNodeEnv?: NodeJS.ProcessEnv;
  /** Puts a proxy in front of every node. */
  readonly proxies?: boolean;
}

/** Options of clients; see `WorkerOptions`. */
export interface ClientOptions extends Partial<
  Omit<WorkerOptions, 'client' | 'log' | 'registerPort' | 'module' | 'retry' | 'targets'>
> {
  readonly retry?: Partial<WorkerOptions['retry']>;
  readonly module?: Partial<WorkerOptions['module']>;
}

/** The result of a fault test. */
export interface Outcome extends Verdict {
  /** Locks that stayed on the nodes when no client held any. */
  readonly orphans: readonly string[];
  /** Acquisitions per second since the first one. */
  readonly rate: number;
  readonly events: readonly FaultEvent[];
}

/** The servers, proxies, register and clients of one fault test. */
export class Stage {
  readonly clients: FaultClient[] = [];
  readonly #furtherProxies: TcpProxy[] = [];
  readonly #forget = cleanUpAfterTests(() => this.close());
  #register: RegisterClient | undefined;
  #named = 0;

  private constructor(
    readonly servers: readonly RedisServer[],
    readonly proxies: readonly TcpProxy[],
    /** The nodes, if they are Clusters or Sentinels. */
    readonly deployments: readonly Deployment[],
    private readonly directory: string,
    private readonly programs: string,
    private readonly registerProcess: ChildProcess,
    private readonly registerPort: number,
  ) {}

  /** @param programs - the folder that `bundle` made of `PROGRAMS` */
  static async set(
    programs: string,
    { nodes, each, nodeArgs: args = [], firstNodeEnv: env = {}, proxies }: StageOptions,
  ): Promise<Stage> {
    const deployments = each
      ? await Promise.all(Array.from({ length: nodes }, () => startDeployment(each)))
      : [];
    const servers = each
      ? deployments.flatMap((deployment) => deployment.servers)
      : [...(await startRedisNodes(1, { args, env })), ...(await startRedisNodes(nodes - 1, { args }))];
    const inFront = proxies ? await Promise.all(servers.map((server) => startTcpProxy(server))) : [];
    const directory = await mkdtemp(join(tmpdir(), 'fault-clients-'));
    const register = spawn(process.execPath, [join(programs, 'register.js')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const [port] = (await once(register.stdout, 'data')) as [Buffer];
    return new Stage(servers, inFront, deployments, directory, programs, register, Number(port.toString()));
  }

  /** The URLs that clients use for the nodes: the URLs of the proxies, if there are proxies. */
  get urls(): string[] {
    return (this.proxies.length > 0 ? this.proxies : this.servers).map(({ url }) => url);
  }

  get #targets(): Target[] {
    if (this.deployments.length > 0) return this.deployments.map(({ target }) => target);
    return this.urls.map((url) => ({ kind: 'server', url }));
  }

  /** Starts one more proxy in front of a node, for a client that needs a different connection to this node. */
  async proxyTo(node: number): Promise<TcpProxy> {
    const proxy = await startTcpProxy(this.servers[node]!);
    this.#furtherProxies.push(proxy);
    return proxy;
  }

  /** Starts client processes; resolves when all are connected. They ask for locks when the command `go` tells them to. */
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
        passesIn: undefined,
        ...options,
        targets: this.#targets,
        // With shorter delays, ten clients split the votes in most attempts.
        retry: { timeout: 5_000, delay: 30, jitter: 80, ...retry },
        module: { nodes: this.urls, nodeTimeout: 100, restartGuard: false, owner: client, ...module },
      });
      this.clients.push(started);
      clients.push(started);
    }
    await Promise.all(clients.map((client) => client.has('ready')));
    return clients;
  }

  /** Starts the callers of the clients. */
  go(clients: readonly FaultClient[] = this.clients): void {
    for (const client of clients) client.tell('go');
  }

  /** The events of all clients so far. */
  async events(): Promise<FaultEvent[]> {
    return (await Promise.all(this.clients.map((client) => client.events()))).flat();
  }

  /** Waits until the clients have acquired the lock this many times since the start. */
  async acquired(times: number, within = 120_000): Promise<void> {
    const enough = async (): Promise<boolean> =>
      (await this.events()).filter(({ event }) => event === 'return').length >= times;
    await until(enough, within).catch((error: unknown) => {
      throw new Error(`the lock was not acquired ${times} times in ${within} ms`, { cause: error });
    });
  }

  /** Waits until a client holds the lock, and returns it. */
  async holder(): Promise<FaultClient> {
    let found: FaultClient | undefined;
    await until(async () => {
      for (const client of this.clients) {
        if (!client.killed && (await client.holds())) found = client;
      }
      return found !== undefined;
    }, 120_000);
    return found!;
  }

  /** Ends the clients, looks for orphans, and judges the events. All faults must have ended earlier. */
  async end(): Promise<Outcome> {
    const alive = this.clients.filter(({ killed, quitting }) => !killed && !quitting);
    const end = machineTime();
    await Promise.all(alive.map((client) => client.stop()));
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

  /**
   * Returns two kinds of leftovers: locks that stay on the nodes although no client holds them, and entries in a key's
   * set of holders although the key's record is free or missing. The clients still run, so that they can repeat a
   * release that did not reach its node.
   */
  async #orphans(): Promise<string[]> {
    const lookers = await this.#mastersThatRun();
    const began = machineTime();
    for (;;) {
      const looked = machineTime();
      const owners = await Promise.all(lookers.map(ownersOfLocks));
      const left = owners.flatMap((each, node) => each.map((owner) => ({ owner, node })));
      const overdue = looked > began + ORPHAN_GRACE_MS ? left : [];
      const allowed = await Promise.all(overdue.map(({ owner }) => this.#timeToEnd(owner, began)));
      const orphans = overdue.filter((_, index) => looked > began + ORPHAN_GRACE_MS + allowed[index]!);
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

  /**
   * Returns connections to the running masters. Leaves out replicas, which repeat the locks of their masters, and
   * killed servers.
   */
  async #mastersThatRun(): Promise<Redis[]> {
    const lookers = this.servers.filter(({ running }) => running).map((server) => server.client());
    const are = await Promise.all(lookers.map(isMaster));
    return lookers.filter((_, index) => are[index]);
  }

  /**
   * Returns the milliseconds for which a lock of this owner may stay beyond {@link ORPHAN_GRACE_MS}. A killed process
   * releases nothing, and a node may execute the last command of that process late, which restarts the ttl. A paused
   * process releases late.
   */
  async #timeToEnd(owner: string, since: number): Promise<number> {
    const client = this.clients.find(({ name }) => name === owner);
    if (!client || client.quitting) return 0;
    if (client.killed) return client.ttl;
    await client.stop();
    const stalls = (await client.events()).filter((event) => event.event === 'stall');
    return stalledBetween(stalls, owner, since, machineTime());
  }
}
