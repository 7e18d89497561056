import type { Cluster } from 'ioredis';

/** So many times as long as the client lets a server take to name the slots may one take to say whether the Cluster is up. */
const PATIENCE = 2;

/**
 * Makes the client of a Cluster connect anew when the master that it asks hangs.
 *
 * Before it is ready, the client asks one master, by chance, whether the Cluster is up, and waits for the answer without
 * a limit: while that one hangs, nothing can be asked of the others (seen with ioredis 5.11 and 6.0). To begin anew is
 * what ioredis does when the master is away or the Cluster down, after what `clusterRetryStrategy` says. Chance leads to
 * another master sooner or later.
 */
export class ClusterConnecting {
  #timer: NodeJS.Timeout | undefined;

  readonly #begin = (): void => {
    const limit = PATIENCE * (this.client.options.slotsRefreshTimeout ?? 1_000);
    clearTimeout(this.#timer);
    // When the thread was blocked, the answer may be there and unread: it comes first.
    this.#timer = setTimeout(setImmediate, limit, this.#beginAnew).unref();
  };

  readonly #end = (): void => clearTimeout(this.#timer);

  readonly #beginAnew = (): void => {
    const { client } = this;
    // The user has closed it, or another module that uses the client was first.
    if (client.status !== 'connect') return;
    const servers = client.nodes();
    client.disconnect(true);
    // A master that hangs does not close its side. ioredis would wait for that (`disconnectTimeout`), and then drop its new
    // connection to the same master in place of the old one.
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
