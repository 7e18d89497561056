import type { SentinelGroup } from './sentinel-group.js';

/** Sets the milliseconds after which the Sentinels take a silent master for dead, and begin a fail-over. */
export async function setFailOverAfter({ sentinels }: SentinelGroup, milliseconds: number): Promise<void> {
  for (const sentinel of sentinels) {
    const client = sentinel.client();
    await client.call('SENTINEL', 'SET', 'locks', 'down-after-milliseconds', milliseconds);
    client.disconnect();
  }
}
