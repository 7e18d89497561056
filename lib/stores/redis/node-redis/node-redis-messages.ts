import { EventEmitter } from 'node:events';
import type { MessageConnection, ServerAddress } from '../connection/driver.js';
import { PLAINLY, type SingleClient } from './client-types.js';

/** Time limit for a connection to become ready, in milliseconds. */
const CONNECT_LIMIT_MS = 5_000;

/**
 * A connection for messages, with the settings of the application's client of node-redis. After a lost connection this
 * class makes a new client. The reason: if a server hangs, this class must end the connection, and node-redis can end a
 * connection only by closing the client for good.
 */
export class NodeRedisMessages extends EventEmitter implements MessageConnection {
  #client: SingleClient | undefined;
  /** The channels that the server has confirmed. */
  readonly #confirmed = new Set<string>();
  #attempts = 0;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(
    private readonly like: () => Promise<SingleClient>,
    private readonly at?: ServerAddress,
  ) {
    super();
  }

  get stream(): MessageConnection['stream'] {
    return { destroy: () => this.#lost(this.#client) };
  }

  connect(): Promise<void> {
    return this.#open();
  }

  disconnect(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    const client = this.#client;
    this.#client = undefined;
    if (client) destroy(client);
  }

  /**
   * Subscribes to a channel. For a repeated subscription node-redis sends nothing, so this method then sends a PING.
   */
  subscribe(channel: string): Promise<unknown> {
    return this.#confirm(channel, (client) => client.subscribe(channel, this.#receive));
  }

  ssubscribe(channel: string): Promise<unknown> {
    return this.#confirm(channel, (client) => client.sSubscribe(channel, this.#receive));
  }

  async sunsubscribe(channel: string): Promise<void> {
    this.#confirmed.delete(channel);
    await this.#client?.sUnsubscribe(channel);
  }

  readonly #receive = (message: string, channel: string): void => {
    this.emit('message', channel, message);
  };

  async #confirm(channel: string, subscribe: (client: SingleClient) => Promise<void>): Promise<void> {
    const client = this.#client;
    if (!client?.isReady) throw new Error('not connected');
    if (this.#confirmed.has(channel)) {
      await client.sendCommand(['PING'], PLAINLY);
      return;
    }
    await subscribe(client);
    if (client === this.#client) this.#confirmed.add(channel);
  }

  async #open(): Promise<void> {
    let client: SingleClient;
    try {
      client = copyOf(await this.like(), this.at);
    } catch {
      return this.#again();
    }
    if (this.#closed) return;
    this.#client = client;
    const lost = (): void => this.#lost(client);
    client.on('error', lost);
    client.on('end', lost);
    client.on('sharded-channel-moved', (channel: string) => {
      this.#confirmed.delete(channel);
      this.emit('sunsubscribe', channel);
    });
    this.#timer = setTimeout(lost, CONNECT_LIMIT_MS).unref();
    try {
      await client.connect();
    } catch {
      return lost();
    }
    if (client !== this.#client) return;
    clearTimeout(this.#timer);
    this.#attempts = 0;
    this.emit('ready');
  }

  #lost(client: SingleClient | undefined): void {
    if (!client || client !== this.#client) return;
    this.#client = undefined;
    this.#confirmed.clear();
    clearTimeout(this.#timer);
    destroy(client);
    this.emit('close');
    this.#again();
  }

  #again(): void {
    if (this.#closed) return;
    this.#attempts++;
    this.#timer = setTimeout(() => void this.#open(), Math.min(this.#attempts * 20, 500)).unref();
  }
}

function copyOf(client: SingleClient, at: ServerAddress | undefined): SingleClient {
  return client.duplicate({
    // The URL would override the address below. The options already contain the other settings of the URL.
    url: undefined,
    name: 'nestjs-redlock-messages',
    disableOfflineQueue: true,
    readonly: false,
    pingInterval: 0,
    clientSideCache: undefined,
    emitInvalidate: false,
    socket: { ...client.options.socket, ...at, connectTimeout: 2_000, reconnectStrategy: false },
  });
}

/** Ends a client. `destroy` of node-redis throws if the client is already closed. */
function destroy(client: SingleClient): void {
  if (client.isOpen) client.destroy();
}
