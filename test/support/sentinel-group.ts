import { type RedisServer, startRedis, startRedisNodes } from './redis-server.js';
import { until } from './until.js';

/**
 * Time limit of a fail-over, in milliseconds. It is long because a Sentinel whose process was paused for two seconds
 * does nothing for thirty seconds (its TILT mode).
 */
export const PATIENCE = 90_000;

/** A master with a replica, and the Sentinels that watch them. */
export interface SentinelGroup {
  readonly master: RedisServer;
  readonly replica: RedisServer;
  readonly sentinels: readonly RedisServer[];
}

export async function startSentinelGroup(sentinelCount = 1): Promise<SentinelGroup> {
  // By default the master waits five seconds for more replicas.
  const master = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] });
  const replica = await startRedis({ args: ['--replicaof', master.host, String(master.port)] });
  const looker = master.client();
  await until(async () => (await looker.info('replication')).includes('state=online'));
  const sentinels = await startRedisNodes(sentinelCount, {
    args: ['--sentinel'],
    config: [
      `sentinel monitor locks ${master.host} ${master.port} 1`,
      // A busy machine can pause the master for a second or two: the Sentinel must not fail over by itself.
      'sentinel down-after-milliseconds locks 5000',
      'sentinel failover-timeout locks 2000',
      '',
    ].join('\n'),
  });
  for (const sentinel of sentinels) {
    // A Sentinel can fail over only when it has found the replica, and names other Sentinels only when it has found
    // them.
    const found = async (what: string, count: number): Promise<boolean> =>
      ((await sentinel.client().call('SENTINEL', what, 'locks')) as unknown[]).length === count;
    await until(() => found('REPLICAS', 1), PATIENCE);
    await until(() => found('SENTINELS', sentinelCount - 1), PATIENCE);
  }
  return { master, replica, sentinels };
}
