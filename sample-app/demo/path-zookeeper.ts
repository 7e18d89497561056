import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from './free-port.js';
import { guardDirectory } from './orphan-guard.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

/** Advice for a machine without ZooKeeper. No npm package has one. */
export const HOW_TO_GET_ZOOKEEPER =
  'There is no ZooKeeper in /usr/share/java, or no java on the PATH: install both (Debian, Ubuntu: ' +
  'apt-get install libzookeeper-java default-jre-headless; others: https://zookeeper.apache.org/releases.html)';

/** The folder of Debian's packages of Java programs. */
const JARS = '/usr/share/java';

const JAR = join(JARS, 'zookeeper.jar');

/** The jar of ZooKeeper names most of its libraries itself. */
const CLASS_PATH = [JAR, join(JARS, 'slf4j-simple.jar')].join(':');

const ANSWER_TIMEOUT_MS = 2_000;

/** A ZooKeeper with its data directory and its address. It can start again after a crash. */
export interface PreparedZooKeeper {
  /** `zookeeper://` and the address. */
  readonly url: string;
  launch(): ServerProcess;
}

/**
 * Starts Debian's ZooKeeper on the loopback interface.
 *
 * @returns the server's address and description
 * @throws Error that says how to install ZooKeeper
 */
export async function startZooKeeper(stops: StopList): Promise<{ url: string; description: string }> {
  if (!(await hasZooKeeper()))
    throw new Error(`${HOW_TO_GET_ZOOKEEPER}, or start another one and set ZOOKEEPER_SERVERS.`);
  const { url, launch } = await prepareZooKeeper(stops);
  const server = launch();
  await stops.add(() => server.stop());
  await server.whenReady(() => isServing(url));
  const [version = ''] = /(?<=version: )[\d.]+/.exec(await stateOf(url)) ?? [];
  return { url: new URL(url).host, description: `ZooKeeper ${version} in ${JARS}` };
}

/** Makes a temporary directory for the ZooKeeper, and removes the directory at the end. */
export async function prepareZooKeeper(stops: StopList): Promise<PreparedZooKeeper> {
  const directory = await mkdtemp(join(tmpdir(), 'batch-demo-zookeeper-'));
  guardDirectory(directory);
  await stops.add(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const port = await freePort();
  const config = join(directory, 'zoo.cfg');
  const lines = [
    ...[`dataDir=${join(directory, 'data')}`, `clientPort=${port}`, 'clientPortAddress=127.0.0.1'],
    ...['tickTime=2000', 'admin.enableServer=false', '4lw.commands.whitelist=srvr'],
  ];
  await writeFile(config, `${lines.join('\n')}\n`);
  const args = [
    ...['-Xmx128m', '-XX:+UseSerialGC', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', CLASS_PATH],
    ...['org.apache.zookeeper.server.quorum.QuorumPeerMain', config],
  ];
  return {
    url: `zookeeper://127.0.0.1:${port}`,
    launch: () => new ServerProcess('ZooKeeper', 'java', args),
  };
}

/** Returns true if this machine has Debian's ZooKeeper and a Java. */
export async function hasZooKeeper(): Promise<boolean> {
  if (!existsSync(JAR)) return false;
  return promisify(execFile)('java', ['-version']).then(
    () => true,
    () => false,
  );
}

/** Resolves to true if the ZooKeeper serves requests; for `whenReady`. */
export async function isServing(url: string): Promise<true | undefined> {
  return /^Mode: /m.test(await stateOf(url)) ? true : undefined;
}

/** The answer of the ZooKeeper to `srvr`; empty without one. */
function stateOf(url: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(Number(port), hostname, () => socket.write('srvr'));
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
    socket.on('data', (data) => (answer += String(data)));
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(answer));
  });
}
