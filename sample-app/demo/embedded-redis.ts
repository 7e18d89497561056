import { execFile } from 'node:child_process';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { freePort } from './free-port.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

/**
 * Starts our own Redis on the loopback interface: the `redis-server` on the PATH, else `js-redis-server`.
 *
 * @returns the server's URL and description
 */
export async function startRedis(stops: StopList): Promise<{ url: string; description: string }> {
  const version = await redisOnPath();
  return version === undefined
    ? {
        url: await startJsRedis(stops),
        description: 'js-redis-server (there is no redis-server on the PATH)',
      }
    : { url: await startRedisServer(stops), description: `redis-server ${version} from the PATH` };
}

/** Returns the version of the `redis-server` on the PATH; `undefined` without one. */
export async function redisOnPath(): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)('redis-server', ['--version']);
    return /v=(\S+)/.exec(stdout)?.[1] ?? stdout.trim();
  } catch {
    return undefined;
  }
}

async function startRedisServer(stops: StopList): Promise<string> {
  const port = await freePort();
  const server = new ServerProcess(
    'redis-server',
    'redis-server',
    ['--bind', '127.0.0.1', '--port', String(port), '--save', '', '--appendonly', 'no'],
    { cwd: tmpdir() },
  );
  await stops.add(() => server.stop());
  const url = `redis://127.0.0.1:${port}`;
  await server.whenReady(() => answers(url));
  return url;
}

/** The server runs in its own process, as a real Redis: it must survive the instances, and not share their thread. */
async function startJsRedis(stops: StopList): Promise<string> {
  const server = new ServerProcess('js-redis-server', process.execPath, [
    fileURLToPath(new URL('./js-redis.js', import.meta.url)),
  ]);
  await stops.add(() => server.stop());
  return server.whenReady(() => /redis:\S+/.exec(server.output)?.[0]);
}

async function answers(url: string): Promise<true | undefined> {
  const client = new Redis(url, { lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: () => null });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.ping();
    return true;
  } catch {
    return undefined;
  } finally {
    client.disconnect();
  }
}
