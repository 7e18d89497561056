import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { redisVersion } from '../support/redis-server.js';

const page = readFileSync(join(import.meta.dirname, '../../docs/choosing-nodes.md'), 'utf8');

/** Further rights for Redis 7.2 and later; an older server does not know them. */
export const NEWER_RIGHTS = rightsAfter('```\n(?=\\+client\\|setinfo)');

/** The rights in docs/choosing-nodes.md that every user needs. */
export const RIGHTS = [
  ...rightsAfter('ACL SETUSER locks on >secret '),
  ...(redisVersion() < 7.2 ? [] : NEWER_RIGHTS),
];

/** Further rights on a Cluster. */
export const CLUSTER_RIGHTS = rightsAfter('```\n(?=\\+cluster)');

/** Further rights with a client of node-redis. */
export const NODE_REDIS_RIGHTS = rightsAfter('```\n(?=\\+ping)');

/** Further rights with a client of Valkey GLIDE. */
export const GLIDE_RIGHTS = rightsAfter('```\n(?=\\+client\\|info)');

function rightsAfter(pattern: string): string[] {
  const rights = new RegExp(`${pattern}(.*)`).exec(page)?.[1];
  if (rights === undefined) throw new Error(`docs/choosing-nodes.md has no line after ${pattern}`);
  return rights.split(' ');
}
