import type { Cluster } from 'ioredis';
import { keyPrefixOf } from '../connection/connection.js';
import { type Driver, mastersOf, type ServerAddress } from '../connection/driver.js';
import type { Subscription } from '../../../core/ports.js';
import { copyForMessages, type Listener, Subscriber } from './subscriber.js';

/**
 * Receives messages from a Cluster with sharded pub/sub: a channel belongs to the server that has the hash slot of its
 * name. While a channel has no working subscription, its waiters poll.
 *
 * Opens its own connections and does not use the sharded subscriber of ioredis. That subscriber connects again after it
 * was closed. It also never gets an answer to a subscription at the wrong server (both seen with 5.11).
 */
export class ClusterSubscriber {
  readonly #servers = new Map<string, Subscriber>();

  /** Always `false`, because no single connection serves all channels. */
  readonly subscribed = false;

  constructor(
    private readonly client: Driver,
    private readonly denied: () => void,
  ) {}

  listen(channel: string, listener: Listener): Subscription {
    let stopped = false;
    let at: Subscription | undefined;
    const begin = async (): Promise<void> => {
      const server = await this.#serverOf(channel);
      if (stopped || !server) return;
      at = server.listen(channel, listener);
      if (at.ready) listener.ready(true);
    };
    // Ignore an error: without messages the waiter polls.
    begin().catch(() => undefined);
    return {
      get ready() {
        return at?.ready ?? false;
      },
      stop: () => {
        stopped = true;
        at?.stop();
      },
    };
  }

  close(): void {
    for (const server of this.#servers.values()) server.close();
    this.#servers.clear();
  }

  /**
   * Finds the server of a channel. Asks one master for a key in the hash slot of the channel; a master without that
   * slot answers with the address of the right one (MOVED).
   */
  async #serverOf(channel: string): Promise<Subscriber | undefined> {
    const [master] = mastersOf(this.client);
    if (!master) return undefined;
    const { host = '', port = 0 } = master.options;
    // The name of the channel already contains the prefix that this connection adds to a key, so remove it.
    const before = keyPrefixOf(master);
    const key = channel.startsWith(before) ? channel.slice(before.length) : channel;
    const answer = await master.exists(key).catch((error: Error) => error.message);
    const elsewhere = /^MOVED \d+ (.*):(\d+)$/.exec(String(answer));
    // A server that does not know its own address answers with the port only.
    const named = { host: elsewhere?.[1] || host, port: Number(elsewhere?.[2] ?? port) };
    const server = elsewhere ? this.#mapped(named) : named;
    const name = `${server.host}:${server.port}`;
    const subscriber =
      this.#servers.get(name) ?? new Subscriber(() => copyForMessages(master, server), true, this.denied);
    this.#servers.set(name, subscriber);
    return subscriber;
  }

  /** The address that the client uses for a server (`natMap`). */
  #mapped(server: ServerAddress): ServerAddress {
    const { natMap } = (this.client as Cluster).options;
    const address = `${server.host}:${server.port}`;
    return (typeof natMap === 'function' ? natMap(address) : natMap?.[address]) ?? server;
  }
}
