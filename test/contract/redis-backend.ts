import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { type ClientMaker, storeOver } from '../support/clients.js';
import { countLocks, newFleet, nodesTo } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import type { Backend } from './lock-contract.js';

/**
 * Starts `count` real servers, and kills the first `down` of them before a process connects.
 *
 * @param passedIn - makes a client that a store is to use; without it the stores open their own connections
 */
export async function redisBackend(count: number, down = 0, passedIn?: ClientMaker): Promise<Backend> {
  const servers = await startRedisNodes(count);
  await Promise.all(servers.slice(0, down).map((server) => server.kill()));
  const alive = servers.slice(down);
  const lookers = alive.map((server) => server.client());
  return {
    nodes: () => connectedNodes(servers, down, passedIn),
    async countKeys() {
      const sizes = await Promise.all(lookers.map(countLocks));
      return sizes.reduce((sum, size) => sum + size, 0);
    },
    async stop() {
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

async function connectedNodes(
  servers: readonly RedisServer[],
  down: number,
  passedIn: ClientMaker | undefined,
): Promise<RedisStore[]> {
  const urls = servers.map(({ url }) => url);
  const context = newFleet(false, urls.length > 1);
  const nodes = passedIn
    ? await Promise.all(urls.map(async (url) => storeOver(await passedIn(url), context)))
    : nodesTo(urls, context);
  await Promise.all(
    nodes.map((node, index) =>
      node.connect().catch((error: unknown) => {
        if (index >= down) throw error;
      }),
    ),
  );
  return nodes;
}
