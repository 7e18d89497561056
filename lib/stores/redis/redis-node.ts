import type { RecentKeys } from '../../core/recent-keys.js';
import type { CommandChannel } from './connection/command-channel.js';
import type { ServerProbe } from './health/server-probe.js';
import type { StoreContext } from './store-context.js';

/** The parts of a Redis store that `Acquisitions` and `Releases` use. */
export interface RedisNode {
  readonly name: string;
  readonly context: StoreContext;
  readonly isCluster: boolean;
  /** `true` if the library made the client; a passed-in client may itself resend commands. */
  readonly opened: boolean;
  readonly channel: CommandChannel;
  readonly probe: ServerProbe;
  readonly waiters: RecentKeys;
  /** The keys in a hash slot of a Cluster that moves to another master. */
  readonly moving: RecentKeys;
  /** The prefix of channel names; empty on a Cluster. */
  readonly channelBase: string;
  /**
   * The key of the node's marker. A Cluster has none, because the marker would be in another hash slot than the locks.
   */
  readonly marker: string | undefined;
}
