import type { Cluster } from 'ioredis';
import { neutral } from '../../../core/neutral.js';

/**
 * Time limit for a master to report the state of the Cluster, as a multiple of `slotsRefreshTimeout`, the client's own
 * time limit for the list of slots.
 */
const PATIENCE = 2;

/**
 * Makes the client of a Cluster connect again if a master hangs while the client connects.
 *
 * Before the client is ready, it asks one random master for the state of the Cluster, and waits for the answer without
 * a limit. While that master hangs, no command reaches the other masters (seen with ioredis 5.11 and 6.0). If a master
 * is unreachable or the Cluster is down, ioredis itself connects again, after the delay of `clusterRetryStrategy`.
 * After some attempts it asks another master.
 */
export class ClusterConnecting {
  #timer: NodeJS.Timeout | undefined;

  /** An event of the client, which the application may have connected in a request (S30). */
  readonly #begin = neutral((): void => {
    const limit = PATIENCE * (this.client.options.slotsRefreshTimeout ?? 1_000);
    clearTimeout(this.#timer);
    // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
    // Node read the answer before the time limit takes effect.
    this.#timer = setTimeout(setImmediate, limit, this.#connectAgain).unref();
  });

  readonly #end = (): void => clearTimeout(this.#timer);

  readonly #connectAgain = (): void => {
    const { client } = this;
    // The state has changed: the application has closed the client, or another module with the same client has
    // reconnected it.
    if (client.status !== 'connect') return;
    const servers = client.nodes();
    client.disconnect(true);
    // Destroy the sockets: a master that hangs does not close its side of a connection. ioredis would wait until that
    // side is closed (`disconnectTimeout`), and would then close its new connection to the same master instead of the
    // old one.
    for (const { stream } of servers) stream?.destroy();
  };

  constructor(private readonly client: Cluster) {
    client.on('connect', this.#begin);
    client.on('ready', this.#end);
    client.on('close', this.#end);
    if (client.status === 'connect') this.#begin();
  }

  close(): void {
    this.#end();
    this.client.off('connect', this.#begin);
    this.client.off('ready', this.#end);
    this.client.off('close', this.#end);
  }
}
