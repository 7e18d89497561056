import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { until } from './until.js';
import { startWatchdog } from './watchdog.js';

const START_TIMEOUT = 60_000;

/**
 * Timing in milliseconds. With these values etcd grants leases of one second, and a cluster elects a new leader in less
 * than a second.
 */
const QUICK = { heartbeat: 20, election: 200 };

/** Help text of `etcd`; `undefined` without an `etcd` on the PATH. */
const help = ((): string | undefined => {
  try {
    return execFileSync('etcd', ['--help'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  } catch {
    return undefined;
  }
})();

/** Returns true if there is an `etcd` on the PATH; otherwise prints how to install one. */
export function hasEtcd(): boolean {
  if (help === undefined)
    process.stderr.write('Skipped: no `etcd` on the PATH; on Debian it is `apt-get install etcd-server`.\n');
  return help !== undefined;
}

/**
 * Returns true if there is an `etcdctl`, which copies and restores the data of an etcd; otherwise prints how to install
 * one.
 */
export function hasEtcdctl(): boolean {
  try {
    execFileSync('etcdctl', ['version'], { stdio: 'ignore' });
    return true;
  } catch {
    process.stderr.write(
      'Skipped: no `etcdctl` on the PATH; on Debian it is `apt-get install etcd-client`.\n',
    );
    return false;
  }
}

/**
 * True if this version has etcd issue 15247: a leader that was paused revokes leases which its successor has renewed.
 * Then locks can overlap, and a test can judge only fencing tokens while a leader is paused.
 */
export function oldLeadersRevoke(): boolean {
  const version = execFileSync('etcd', ['--version'], { encoding: 'utf8' });
  const [, line = '', patch] = /(\d+\.\d+)\.(\d+)/.exec(version) ?? [];
  const mended = { '3.4': 31, '3.5': 13 }[line];
  return mended !== undefined && Number(patch) < mended;
}

export interface StartEtcdOptions {
  /** Further arguments of etcd; they override the arguments that {@link EtcdServer} sets. */
  readonly args?: readonly string[];
  /** A second URL for clients, such as one with https. */
  readonly alsoAt?: string;
  /**
   * Milliseconds between heartbeats, and milliseconds without a heartbeat until an election. A lease lasts at least one
   * and a half times as long as the time until an election.
   */
  readonly timing?: { readonly heartbeat: number; readonly election: number };
}

/** Starts one etcd on the loopback interface. Resolves when the etcd answers. */
export async function startEtcd(options: StartEtcdOptions = {}): Promise<EtcdServer> {
  const [server] = await startEtcdCluster(1, options);
  return server as EtcdServer;
}

/** Starts a cluster of `count` members. */
export async function startEtcdCluster(count: number, options: StartEtcdOptions = {}): Promise<EtcdServer[]> {
  const members = await Promise.all(
    Array.from({ length: count }, async (_, index) => ({
      name: `m${index}`,
      port: await freePort(),
      peerPort: await freePort(),
    })),
  );
  const cluster = members.map(({ name, peerPort }) => `${name}=http://${LOOPBACK}:${peerPort}`).join(',');
  const servers = members.map((member) => new EtcdServer(member, cluster, options));
  try {
    await Promise.all(servers.map((server) => server.start()));
    return servers;
  } catch (error) {
    await Promise.all(servers.map((server) => server.stop()));
    throw error;
  }
}

/** Runs `etcdctl` with the API of version 3. Versions before 3.4 use an older API by default. */
async function etcdctl(...args: readonly string[]): Promise<void> {
  await promisify(execFile)('etcdctl', args, { env: { ...process.env, ETCDCTL_API: '3' } });
}

interface Member {
  readonly name: string;
  readonly port: number;
  readonly peerPort: number;
}

/**
 * An etcd process of one test. It ends after the test file at the latest; a watchdog ends it when the test process is
 * killed.
 */
export class EtcdServer {
  readonly host = LOOPBACK;
  readonly #forget: () => void;
  #process: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #folder: string | undefined;

  constructor(
    private readonly member: Member,
    private readonly cluster: string,
    private readonly options: StartEtcdOptions,
  ) {
    this.#forget = cleanUpAfterTests(() => this.stop());
  }

  get port(): number {
    return this.member.port;
  }

  get url(): string {
    return `http://${this.host}:${this.port}`;
  }

  get pid(): number {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error(`the etcd on port ${this.port} is not running`);
    return pid;
  }

  get running(): boolean {
    return this.#process !== undefined;
  }

  /** Starts the process unless it runs. Resolves when the member answers a request that needs a majority. */
  async start(): Promise<void> {
    if (this.#process) return;
    // The data is in memory if /dev/shm exists, because etcd before 3.5 cannot turn off fsync.
    this.#folder ??= await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'etcd-test-'));
    this.#launch(this.#folder);
    const deadline = performance.now() + START_TIMEOUT;
    while (!(await this.call('kv/range', { key: 'eA==' }, 2_000).then(Boolean, () => false))) {
      if (!this.#process || performance.now() > deadline) {
        const log = await readFile(join(this.#folder, 'etcd.log'), 'utf8');
        throw new Error(`etcd did not answer on port ${this.port}. Its log:\n${log.slice(-4_000)}`);
      }
      await sleep(20);
    }
  }

  /**
   * Asks the JSON gateway of etcd, without the store.
   *
   * @param limit - milliseconds; by default more than a busy machine takes
   */
  async call<Reply = Record<string, unknown>>(path: string, body: object, limit = 60_000): Promise<Reply> {
    const response = await fetch(`${this.url}/v3/${path}`, {
      method: 'POST',
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(limit),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    return JSON.parse(text) as Reply;
  }

  /** Lists all keys, each with its lease: etcd deletes the key when the lease ends. */
  async keys(prefix = 'nestjs-redlock/'): Promise<{ readonly key: string; readonly lease: string }[]> {
    const key = Buffer.from(prefix).toString('base64');
    const range_end = Buffer.from(`${prefix}\u{10FFFF}`).toString('base64');
    const { kvs = [] } = await this.call<{ kvs?: { key: string; lease?: string }[] }>('kv/range', {
      key,
      range_end,
      keys_only: true,
    });
    return kvs.map((each) => ({
      key: Buffer.from(each.key, 'base64').toString(),
      lease: each.lease ?? '0',
    }));
  }

  /** Lists the keys of the holders of locks. */
  async holders(): Promise<string[]> {
    return (await this.keys()).map(({ key }) => key).filter((key) => key.includes('\0h\0'));
  }

  async isLeader(): Promise<boolean> {
    const { header, leader } = await this.call<{ header: { member_id: string }; leader?: string }>(
      'maintenance/status',
      {},
      500,
    );
    return leader === header.member_id;
  }

  /** Sends SIGKILL, as in a crash. */
  async kill(): Promise<void> {
    this.#process?.ref();
    this.#process?.kill('SIGKILL');
    await this.#exited;
  }

  /**
   * Sends SIGSTOP: connections stay open, but the server answers nothing. Resolves when the process has stopped. On a
   * busy machine its threads continue until the kernel delivers the signal, and their messages still count for a
   * majority.
   */
  async pause(): Promise<void> {
    process.kill(this.pid, 'SIGSTOP');
    await until(async () => / T /.test(await readFile(`/proc/${this.pid}/stat`, 'utf8')));
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** Kills the process if it runs, and starts a new one on the same port with the same data. */
  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  /** Copies all data; returns the path of the file. */
  async copy(): Promise<string> {
    const file = join(this.#folder ?? '', 'copy.db');
    // By default `etcdctl` waits for two seconds, which is too short for a busy machine.
    const patience = ['--dial-timeout', '60s', '--command-timeout', '120s'];
    await etcdctl('--endpoints', this.url, ...patience, 'snapshot', 'save', file);
    return file;
  }

  /**
   * Kills the process, and starts a new one with the data of the copy. With a `token` the new one belongs to another
   * cluster.
   */
  async restore(copy: string, token?: string): Promise<void> {
    await this.kill();
    const data = join(this.#folder ?? '', 'data');
    await rm(data, { recursive: true });
    const { name, peerPort } = this.member;
    await etcdctl(
      ...['snapshot', 'restore', copy, '--data-dir', data, '--name', name, '--initial-cluster', this.cluster],
      ...['--initial-advertise-peer-urls', `http://${LOOPBACK}:${peerPort}`],
      ...(token === undefined ? [] : ['--initial-cluster-token', token]),
    );
    await this.start();
  }

  async stop(): Promise<void> {
    this.#forget();
    await this.kill();
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true });
    this.#folder = undefined;
  }

  #launch(folder: string): void {
    const { name, port, peerPort } = this.member;
    const { timing = QUICK, args = [], alsoAt } = this.options;
    const [client, peer] = [`http://${LOOPBACK}:${port}`, `http://${LOOPBACK}:${peerPort}`];
    const log = openSync(join(folder, 'etcd.log'), 'a');
    const all = [
      ...['--name', name, '--data-dir', join(folder, 'data')],
      ...['--listen-client-urls', alsoAt === undefined ? client : `${client},${alsoAt}`],
      ...['--advertise-client-urls', client],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', this.cluster],
      ...['--heartbeat-interval', String(timing.heartbeat), '--election-timeout', String(timing.election)],
      ...(help?.includes('--unsafe-no-fsync') ? ['--unsafe-no-fsync'] : []),
      ...args,
    ];
    // The process has its own session: Ctrl-C in the terminal reaches only Jest, also when the server is paused.
    const child = spawn('etcd', all, { detached: true, stdio: ['ignore', log, log] });
    closeSync(log);
    child.unref();
    this.#process = child;
    const watchdog = child.pid === undefined ? undefined : startWatchdog(child.pid, folder);
    this.#exited = new Promise((resolve) => {
      const ended = (): void => {
        watchdog?.kill('SIGKILL');
        this.#process = undefined;
        resolve();
      };
      child.once('exit', ended);
      child.once('error', ended);
    });
  }
}
