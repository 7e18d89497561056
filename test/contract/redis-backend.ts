import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { countLocks, nodesTo } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import type { Backend } from './lock-contract.js';

/** So many real servers, of which the first `down` are killed before anybody connects. */
export async function redisBackend(count: number, down = 0): Promise<Backend> {
  const servers = await startRedisNodes(count);
  await Promise.all(servers.slice(0, down).map((server) => server.kill()));
  const alive = servers.slice(down);
  const lookers = alive.map((server) => server.client());
  return {
    nodes: () => connectedNodes(servers, down),
    async countKeys() {
      const sizes = await Promise.all(lookers.map(countLocks));
      return sizes.reduce((sum, size) => sum + size, 0);
    },
    async stop() {
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

async function connectedNodes(servers: readonly RedisServer[], down: number): Promise<RedisStore[]> {
  const nodes = nodesTo(servers.map(({ url }) => url));
  await Promise.all(
    nodes.map((node, index) =>
      node.connect().catch((error: unknown) => {
        if (index >= down) throw error;
      }),
    ),
  );
  return nodes;
}
