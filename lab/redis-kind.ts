import { redisOnPath } from '../sample-app/demo/embedded-redis.js';

/** Kind of the Redis servers of the lab: the `redis-server` on the PATH, or the `js-redis-server` of the sample. */
export interface RedisKind {
  readonly kind: 'redis-server' | 'js-redis-server';
  readonly description: string;
}

export async function findRedis(): Promise<RedisKind> {
  const version = await redisOnPath();
  return version === undefined
    ? {
        kind: 'js-redis-server',
        description:
          'js-redis-server, because there is no redis-server on the PATH (apt-get install redis-server, brew install redis)',
      }
    : { kind: 'redis-server', description: `redis-server ${version} from the PATH` };
}
