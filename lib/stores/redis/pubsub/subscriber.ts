import type { Redis } from 'ioredis';
import type { Subscription } from '../../../core/ports.js';
import { KEEP_ALIVE_MS } from '../connection/connection.js';
import type { MessageConnection, Server, ServerAddress } from '../connection/driver.js';
import { leadsTo, type MasterAddress } from '../connection/master-address.js';

/** Milliseconds for which a connection without listeners is kept. */
const IDLE_MS = 5_000;

/** Milliseconds between two checks of a connection with listeners. */
const HEARTBEAT_MS = 500;

/** Milliseconds before a failed subscription is repeated. */
const SUBSCRIBE_AGAIN_MS = 200;

/** A channel and its listeners. */
interface Channel {
  ready: boolean;
  readonly listeners: Set<Listener>;
}

/** A listener for the messages of a channel. */
export interface Listener {
  readonly message: (text: string) => void;
  /** Called with `true` when the subscription begins to work, and with `false` when it stops working. */
  readonly ready: (ready: boolean) => void;
}

/**
 * Receives messages from one server on a separate connection. The connection is opened for the first listener, and
 * closed some time after the last listener was removed. Messages are hints: a lost message only costs time.
 */
export class Subscriber {
  readonly #channels = new Map<string, Channel>();
  #connection: MessageConnection | undefined;
  #connected = false;
  #heartbeat: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;

  /**
   * @param open - makes a connection for messages, without connecting it
   * @param sharded - `true` if a channel belongs to a slot of a Cluster
   * @param denied - called when the user has no right to a channel
   */
  constructor(
    private readonly open: () => MessageConnection,
    private readonly sharded: boolean,
    private readonly denied: () => void,
  ) {}

  /** `true` if there are channels, and the subscription to each of them works. */
  get subscribed(): boolean {
    for (const { ready } of this.#channels.values()) if (!ready) return false;
    return this.#channels.size > 0;
  }

  listen(channel: string, listener: Listener): Subscription {
    clearTimeout(this.#idle);
    this.#open();
    const entry = this.#channels.get(channel) ?? this.#add(channel);
    entry.listeners.add(listener);
    return {
      get ready() {
        return entry.ready;
      },
      stop: () => {
        entry.listeners.delete(listener);
        // Drop the channel only on a Cluster, where it belongs to one key. Elsewhere one channel serves all keys, so
        // keep it.
        if (entry.listeners.size === 0 && this.sharded) this.#drop(channel);
        this.#closeWhenIdle();
      },
    };
  }

  /** Moves the connection to the master at this address. */
  follow(master: MasterAddress): void {
    const stream = this.#connection?.stream;
    if (stream && !leadsTo(stream, master)) stream.destroy();
  }

  close(): void {
    clearTimeout(this.#idle);
    clearTimeout(this.#heartbeat);
    const connection = this.#connection;
    this.#connection = undefined;
    this.#connected = false;
    this.#channels.clear();
    connection?.disconnect();
  }

  #open(): void {
    if (this.#connection) return;
    const connection = this.open();
    this.#connection = connection;
    connection.on('error', () => undefined);
    connection.on('ready', () => {
      if (connection !== this.#connection) return;
      this.#connected = true;
      for (const channel of this.#channels.keys()) this.#subscribe(channel);
    });
    connection.on('close', () => {
      if (connection !== this.#connection) return;
      this.#connected = false;
      for (const channel of this.#channels.values()) setReady(channel, false);
    });
    const receive = (channel: string, text: string): void => {
      for (const { message } of this.#channels.get(channel)?.listeners ?? []) message(text);
    };
    connection.on('message', receive);
    connection.on('smessage', receive);
    // The slot of the channel has moved to another server of the Cluster, so the waiters of the channel poll from now
    // on.
    connection.on('sunsubscribe', (channel: string) => {
      const entry = this.#channels.get(channel);
      if (entry) setReady(entry, false);
    });
    connection.connect().catch(() => undefined);
    this.#beginHeartbeat(connection);
  }

  #add(channel: string): Channel {
    const entry = { ready: false, listeners: new Set<Listener>() };
    this.#channels.set(channel, entry);
    if (this.#connected) this.#subscribe(channel);
    return entry;
  }

  #drop(channel: string): void {
    this.#channels.delete(channel);
    this.#connection?.sunsubscribe(channel).catch(() => undefined);
  }

  #subscribe(channel: string): void {
    const connection = this.#connection;
    if (!connection) return;
    const still = (): Channel | undefined =>
      this.#connected && connection === this.#connection ? this.#channels.get(channel) : undefined;
    const subscribe = async (): Promise<void> => {
      try {
        await this.#send(connection, channel);
        const entry = still();
        if (entry) setReady(entry, true);
      } catch (error) {
        if ((error as Error).message.startsWith('NOPERM')) this.denied();
        setTimeout(() => {
          if (still()?.ready === false) this.#subscribe(channel);
        }, SUBSCRIBE_AGAIN_MS).unref();
      }
    };
    void subscribe();
  }

  /**
   * Checks the connection again and again: a server that hangs does not close it, but sends no messages. The check is a
   * repeated subscription, which changes nothing and needs no further right.
   */
  #beginHeartbeat(connection: MessageConnection): void {
    let answered = true;
    const onAnswer = (): void => {
      answered = true;
    };
    const beat = (): void => {
      if (connection !== this.#connection) return;
      waitForNext();
      const [channel] = this.#channels.keys();
      if (!this.#connected || channel === undefined) return;
      if (!answered) connection.stream?.destroy();
      answered = !answered;
      if (!answered) this.#send(connection, channel).then(onAnswer, onAnswer);
    };
    const waitForNext = (): void => {
      // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
      // Node read the answer before the time limit takes effect.
      this.#heartbeat = setTimeout(setImmediate, HEARTBEAT_MS, beat).unref();
    };
    waitForNext();
  }

  #send(connection: MessageConnection, channel: string): Promise<unknown> {
    return this.sharded ? connection.ssubscribe(channel) : connection.subscribe(channel);
  }

  #closeWhenIdle(): void {
    for (const { listeners } of this.#channels.values()) if (listeners.size > 0) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.close(), IDLE_MS).unref();
  }
}

function setReady(channel: Channel, ready: boolean): void {
  if (channel.ready === ready) return;
  channel.ready = ready;
  for (const listener of channel.listeners) listener.ready(ready);
}

/**
 * Makes a connection for messages to the server, or to another server of its Cluster. The connection has the settings
 * of the client that is connected to the server.
 */
export function copyForMessages(server: Server, at?: ServerAddress): MessageConnection {
  if (server.messages) return server.messages(at);
  return (server as Redis).duplicate({
    ...at,
    // ioredis would add its `keyPrefix` to the names of sharded channels, which already contain it.
    keyPrefix: '',
    lazyConnect: true,
    keepAlive: KEEP_ALIVE_MS,
    readOnly: false,
    enableReadyCheck: false,
    enableOfflineQueue: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    failoverDetector: false,
    disconnectTimeout: 100,
    connectionName: 'nestjs-redlock-messages',
    retryStrategy: (times) => Math.min(times * 20, 500),
  });
}
