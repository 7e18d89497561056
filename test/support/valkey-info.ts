import type { Redis } from 'ioredis';

/** Changes the replies of INFO to those of Valkey 8 and later: `server_mode`, where Redis has `redis_mode`. */
export function likeValkey(client: Redis): Redis {
  return rewriteInfo(client, (info) => info.replace('redis_mode:', 'server_mode:'));
}

/** Changes the replies of INFO that the client returns to its caller. */
export function rewriteInfo(client: Redis, rewrite: (info: string) => string): Redis {
  const info = client.info.bind(client) as (...args: unknown[]) => Promise<string>;
  // ioredis itself calls `info` with a callback, to learn if the server is ready. The reply to this call stays
  // unchanged.
  const rewritten = (...args: unknown[]): Promise<string> =>
    args.length > 0 ? info(...args) : info().then(rewrite);
  client.info = rewritten as Redis['info'];
  return client;
}
