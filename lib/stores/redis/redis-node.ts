import type { RecentWaiters } from '../../core/recent-waiters.js';
import type { CommandChannel } from './connection/command-channel.js';
import type { ServerProbe } from './health/server-probe.js';
import type { StoreContext } from './store-context.js';

/** One Redis, as those who ask it something need it. */
export interface RedisNode {
  readonly name: string;
  readonly context: StoreContext;
  readonly isCluster: boolean;
  /** Whether the client was made for us: one of the user's may send commands again by itself. */
  readonly opened: boolean;
  readonly channel: CommandChannel;
  readonly probe: ServerProbe;
  readonly waiters: RecentWaiters;
  /** What the names of channels begin with; empty on a Cluster. */
  readonly channelBase: string;
  /** The key of the node's marker; a Cluster has none, as it would lie in another slot than the locks. */
  readonly marker: string | undefined;
}
