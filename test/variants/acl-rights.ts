import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { redisVersion } from '../support/redis-server.js';

const page = readFileSync(join(import.meta.dirname, '../../docs/choosing-nodes.md'), 'utf8');

/** What a user of Redis 7.2 and later needs besides; older ones do not know it. */
export const NEWER_RIGHTS = rightsAfter('```\n(?=\\+client)');

/** What a user needs, as docs/choosing-nodes.md has it. */
export const RIGHTS = [
  ...rightsAfter('ACL SETUSER locks on >secret '),
  ...(redisVersion() < 7.2 ? [] : NEWER_RIGHTS),
];

/** What a user of a Cluster needs beside it. */
export const CLUSTER_RIGHTS = rightsAfter('```\n(?=\\+cluster)');

/** What a user of a client of node-redis needs beside the first. */
export const NODE_REDIS_RIGHTS = rightsAfter('```\n(?=\\+ping)');

function rightsAfter(pattern: string): string[] {
  const rights = new RegExp(`${pattern}(.*)`).exec(page)?.[1];
  if (rights === undefined) throw new Error(`docs/choosing-nodes.md has nothing like ${pattern}`);
  return rights.split(' ');
}
