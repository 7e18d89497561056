import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** What the lab's Redis servers are: processes of the one on the PATH, or of the one that comes with the sample. */
export interface RedisKind {
  readonly kind: 'redis-server' | 'js-redis-server';
  readonly description: string;
}

export async function findRedis(): Promise<RedisKind> {
  try {
    const { stdout } = await promisify(execFile)('redis-server', ['--version']);
    const version = /v=(\S+)/.exec(stdout)?.[1] ?? '';
    return { kind: 'redis-server', description: `redis-server ${version} from the PATH` };
  } catch {
    return {
      kind: 'js-redis-server',
      description:
        'js-redis-server, because there is no redis-server on the PATH (apt-get install redis-server, brew install redis)',
    };
  }
}
