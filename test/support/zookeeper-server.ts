import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { until } from './until.js';
import { startWatchdog } from './watchdog.js';

/** A Java machine needs a second to start, and many seconds on a busy machine. */
const START_TIMEOUT = 120_000;

/** The folder of Debian's packages of Java programs. */
const JARS = '/usr/share/java';

/** The jar of ZooKeeper names most of its libraries itself, but not all that TLS and a log need. */
const CLASS_PATH = [
  ...['zookeeper', 'netty-codec', 'netty-resolver', 'netty-transport-native-unix-common', 'slf4j-simple'],
]
  .map((name) => join(JARS, `${name}.jar`))
  .join(':');

/** Returns true if this machine has a ZooKeeper and a Java; otherwise prints how to install them. */
export function hasZooKeeper(): boolean {
  try {
    execFileSync('java', ['-version'], { stdio: 'ignore' });
    if (existsSync(join(JARS, 'zookeeper.jar'))) return true;
  } catch {
    // There is no Java.
  }
  process.stderr.write(
    'Skipped: no ZooKeeper in /usr/share/java; on Debian it is `apt-get install libzookeeper-java default-jre-headless`.\n',
  );
  return false;
}

export interface StartZooKeeperOptions {
  /** Further lines of the configuration. */
  readonly config?: readonly string[];
  /** Further system properties of the Java machine, such as `readonlymode.enabled`. */
  readonly properties?: Readonly<Record<string, string>>;
  /**
   * `true` to keep the data on the disk, which each write then waits for. Tests keep the data in memory.
   * @defaultValue false
   */
  readonly isOnDisk?: boolean;
  /** Further environment variables of the Java machine, such as those of a clock that tests can set. */
  readonly env?: NodeJS.ProcessEnv;
  /** The certificate and the key, in one PEM text, with which the server also takes TLS at its `securePort`. */
  readonly certificate?: string;
}

/** Starts one server on the loopback interface. Resolves when the server answers. */
export async function startZooKeeper(options: StartZooKeeperOptions = {}): Promise<ZooKeeperServer> {
  const [server] = await zooKeeperServers(1, options);
  await server!.start();
  return server!;
}

/** Starts an ensemble of `count` servers. */
export async function startEnsemble(
  count: number,
  options: StartZooKeeperOptions = {},
): Promise<ZooKeeperServer[]> {
  const servers = await zooKeeperServers(count, options);
  await Promise.all(servers.map((server) => server.start()));
  return servers;
}

/** Makes the servers of an ensemble, and starts none of them. */
export async function zooKeeperServers(
  count: number,
  options: StartZooKeeperOptions = {},
): Promise<ZooKeeperServer[]> {
  const members = await Promise.all(
    Array.from({ length: count }, async (_, index): Promise<Member> => {
      const [port, securePort, quorumPort, electionPort] = await Promise.all([
        ...[freePort(), freePort(), freePort(), freePort()],
      ]);
      return {
        ...{ number: index + 1, port: port!, securePort: securePort! },
        ...{ quorumPort: quorumPort!, electionPort: electionPort! },
      };
    }),
  );
  return members.map((member) => new ZooKeeperServer(member, members, options));
}

interface Member {
  readonly number: number;
  readonly port: number;
  readonly securePort: number;
  /** The port at which a leader serves its followers. */
  readonly quorumPort: number;
  readonly electionPort: number;
}

/**
 * A ZooKeeper process of one test. It ends after the test file at the latest; a watchdog ends it when the test process
 * is killed.
 */
export class ZooKeeperServer {
  readonly host = LOOPBACK;
  readonly #forget: () => void;
  #process: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #folder: string | undefined;
  /** The ports through which the server reaches leaders that have another port. */
  readonly #ways = new Map<number, number>();

  constructor(
    private readonly member: Member,
    private readonly members: readonly Member[],
    private readonly options: StartZooKeeperOptions,
  ) {
    this.#forget = cleanUpAfterTests(() => this.stop());
  }

  get port(): number {
    return this.member.port;
  }

  /** The port for TLS, with {@link StartZooKeeperOptions.certificate}. */
  get securePort(): number {
    return this.member.securePort;
  }

  /** The port at which the server serves its followers while it leads. */
  get quorumPort(): number {
    return this.member.quorumPort;
  }

  get address(): string {
    return `${this.host}:${this.port}`;
  }

  get pid(): number {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error(`the ZooKeeper on port ${this.port} is not running`);
    return pid;
  }

  /**
   * Starts the process unless it runs. Resolves when the server has a role.
   *
   * @param isRole - the roles to wait for; by default those that serve requests
   */
  async start(isRole = /^(?:leader|follower|standalone)$/): Promise<void> {
    if (this.#process) return;
    const parent = !this.options.isOnDisk && existsSync('/dev/shm') ? '/dev/shm' : tmpdir();
    this.#folder ??= await mkdtemp(join(parent, 'zookeeper-test-'));
    await this.#launch(this.#folder);
    const deadline = performance.now() + START_TIMEOUT;
    while (!isRole.test((await this.role()) ?? '')) {
      if (!this.#process || performance.now() > deadline) {
        const log = await readFile(join(this.#folder, 'log'), 'utf8');
        throw new Error(`ZooKeeper did not answer on port ${this.port}. Its log:\n${log.slice(-4_000)}`);
      }
      await sleep(50);
    }
  }

  /** The role that the server reports, such as `leader`; `undefined` if it serves no requests. */
  async role(): Promise<string | undefined> {
    return /^Mode: (\S+)/m.exec(await this.#word('srvr'))?.[1];
  }

  /** The number of sessions that watch each path. */
  async watches(): Promise<ReadonlyMap<string, number>> {
    const lines = (await this.#word('wchp')).split('\n');
    const counts = new Map<string, number>();
    let path = '';
    for (const line of lines)
      if (line.startsWith('/')) path = line;
      else if (line.startsWith('\t')) counts.set(path, (counts.get(path) ?? 0) + 1);
    return counts;
  }

  /** From its next start on, the server follows a leader through another port, such as that of a proxy. */
  follow(leader: ZooKeeperServer, port: number): void {
    this.#ways.set(leader.member.number, port);
  }

  /** Stops the process, and keeps a copy of its data. */
  async backUp(): Promise<void> {
    await this.kill();
    await this.#copyData('data', 'copy');
    await this.start();
  }

  /** Stops the process, and starts another one with the data of the last {@link backUp}. */
  async restore(): Promise<void> {
    await this.kill();
    await this.#copyData('copy', 'data');
    await this.start();
  }

  /** Sends SIGKILL, as in a crash. */
  async kill(): Promise<void> {
    this.#process?.ref();
    this.#process?.kill('SIGKILL');
    await this.#exited;
  }

  /** Sends SIGSTOP: connections stay open, but the server answers nothing. Resolves when the process has stopped. */
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

  async stop(): Promise<void> {
    this.#forget();
    await this.kill();
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true });
    this.#folder = undefined;
  }

  async #copyData(from: string, to: string): Promise<void> {
    if (this.#folder === undefined) throw new Error('the server has no data yet');
    await rm(join(this.#folder, to), { recursive: true, force: true });
    await cp(join(this.#folder, from), join(this.#folder, to), { recursive: true });
  }

  /** Sends one of ZooKeeper's commands of four letters. */
  #word(word: string): Promise<string> {
    return new Promise((resolve) => {
      let answer = '';
      const socket = connect(this.port, this.host, () => socket.write(word));
      socket.setTimeout(2_000, () => socket.destroy());
      socket.on('data', (data) => (answer += String(data)));
      socket.on('error', () => undefined);
      socket.on('close', () => resolve(answer));
    });
  }

  async #launch(folder: string): Promise<void> {
    await mkdir(join(folder, 'data'), { recursive: true });
    await writeFile(join(folder, 'data', 'myid'), String(this.member.number));
    await writeFile(join(folder, 'zoo.cfg'), `${(await this.#config(folder)).join('\n')}\n`);
    const properties = { 'org.slf4j.simpleLogger.defaultLogLevel': 'warn', ...this.options.properties };
    const log = openSync(join(folder, 'log'), 'a');
    // The process has its own session: Ctrl-C in the terminal reaches only Jest, also when the server is paused.
    const child = spawn(
      'java',
      [
        ...['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp', CLASS_PATH],
        ...Object.entries(properties).map(([name, value]) => `-D${name}=${value}`),
        ...['org.apache.zookeeper.server.quorum.QuorumPeerMain', join(folder, 'zoo.cfg')],
      ],
      { detached: true, env: { ...process.env, ...this.options.env }, stdio: ['ignore', log, log] },
    );
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

  async #config(folder: string): Promise<readonly string[]> {
    const { certificate, config = [] } = this.options;
    const lines = [
      // Elections and sessions go by ticks: half a second, so that tests need not wait for long.
      // The longest session: a client that asks for a longer one gets this one.
      'maxSessionTimeout=4000',
      ...['tickTime=500', 'initLimit=20', 'syncLimit=6', `dataDir=${join(folder, 'data')}`],
      ...[`clientPort=${this.port}`, `clientPortAddress=${this.host}`, 'maxClientCnxns=0'],
      ...['admin.enableServer=false', '4lw.commands.whitelist=*'],
      ...config,
    ];
    if (this.members.length > 1)
      lines.push(
        ...this.members.map(({ number, quorumPort, electionPort }) => {
          const port = this.#ways.get(number) ?? quorumPort;
          return `server.${number}=${LOOPBACK}:${port}:${electionPort}`;
        }),
      );
    if (certificate === undefined) return lines;
    const file = join(folder, 'server.pem');
    await writeFile(file, certificate);
    return [
      ...lines,
      ...[`secureClientPort=${this.securePort}`, `secureClientPortAddress=${this.host}`],
      'serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory',
      ...[`ssl.keyStore.location=${file}`, 'ssl.keyStore.type=PEM', 'ssl.clientAuth=none'],
      ...[`ssl.trustStore.location=${file}`, 'ssl.trustStore.type=PEM'],
    ];
  }
}
