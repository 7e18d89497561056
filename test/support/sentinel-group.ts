import { type RedisServer, startRedis, startRedisNodes } from './redis-server.js';
import { until } from './until.js';

/** Milliseconds: a Sentinel that stood still for two seconds does nothing for thirty (its TILT mode). */
export const PATIENCE = 90_000;

/** A master with a replica, and the Sentinels that watch them. */
export interface SentinelGroup {
  readonly master: RedisServer;
  readonly replica: RedisServer;
  readonly sentinels: readonly RedisServer[];
}

export async function startSentinelGroup(sentinelCount = 1): Promise<SentinelGroup> {
  // Otherwise it waits five seconds for more replicas.
  const master = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] });
  const replica = await startRedis({ args: ['--replicaof', master.host, String(master.port)] });
  const looker = master.client();
  await until(async () => (await looker.info('replication')).includes('state=online'));
  const sentinels = await startRedisNodes(sentinelCount, {
    args: ['--sentinel'],
    config: [
      `sentinel monitor locks ${master.host} ${master.port} 1`,
      // Longer than a busy machine stands still: otherwise a Sentinel fails over when no test wants it to.
      'sentinel down-after-milliseconds locks 5000',
      'sentinel failover-timeout locks 2000',
      '',
    ].join('\n'),
  });
  for (const sentinel of sentinels) {
    // Until it has found the replica it cannot fail over; until it has found the others it does not tell them.
    const found = async (what: string, count: number): Promise<boolean> =>
      ((await sentinel.client().call('SENTINEL', what, 'locks')) as unknown[]).length === count;
    await until(() => found('REPLICAS', 1), PATIENCE);
    await until(() => found('SENTINELS', sentinelCount - 1), PATIENCE);
  }
  return { master, replica, sentinels };
}
