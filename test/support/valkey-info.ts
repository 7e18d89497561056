import type { Redis } from 'ioredis';

/** Makes a client hear what Valkey 8 and later say in INFO: `server_mode`, where Redis says `redis_mode`. */
export function likeValkey(client: Redis): Redis {
  return rewriteInfo(client, (info) => info.replace('redis_mode:', 'server_mode:'));
}

/** Makes a client hear something else in INFO than its server says. */
export function rewriteInfo(client: Redis, rewrite: (info: string) => string): Redis {
  const info = client.info.bind(client) as (...args: unknown[]) => Promise<string>;
  // With a callback, ioredis itself asks: whether the server is ready.
  const rewritten = (...args: unknown[]): Promise<string> =>
    args.length > 0 ? info(...args) : info().then(rewrite);
  client.info = rewritten as Redis['info'];
  return client;
}
