import { EventEmitter } from 'node:events';
import { neutral } from '../../../core/neutral.js';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { DriverOptions, MessageConnection, Server } from '../connection/driver.js';
import { PLAINLY, type SentinelClient } from './client-types.js';
import { NodeRedisDriver } from './node-redis-driver.js';

/** Milliseconds between two checks whether the copy of the client (see {@link SentinelDriver}) is connected. */
const LOOK_MS = 50;

/**
 * Milliseconds between two PINGs to a copy of the client that is not connected. A PING makes the copy look for the
 * master.
 */
const ASK_MS = 1_000;

/**
 * The driver for a client from `createSentinel` of node-redis. Commands go through a copy of the client, which has its
 * own connection.
 *
 * The client itself has two defects. It sends one command at a time over its connection, and new commands overtake a
 * waiting command again and again (seen with 6.3). It reports a replaced connection only as an error of one of its
 * inner clients, and only with the option `passthroughClientErrorEvents`.
 */
export class SentinelDriver extends NodeRedisDriver {
  readonly isCluster = false;
  readonly options: DriverOptions;
  readonly address = 'sentinel';
  readonly #servers: readonly Server[];
  #copy: SentinelClient | undefined;
  #isReady = false;
  #timer: NodeJS.Timeout | undefined;
  #asked = 0;

  constructor(private readonly client: SentinelClient) {
    super();
    const { _keyPrefix: keyPrefix } = client;
    this.options = { keyPrefix };
    this.#servers = [
      new AdaptedServer(
        (args) => this.ask(args, undefined),
        this.options,
        () => new SentinelMessages(this, () => this.#copy),
      ),
    ];
  }

  get status(): string {
    if (!this.client.isOpen) return 'end';
    if (this.#isReady) return 'ready';
    return this.#copy ? 'reconnecting' : 'wait';
  }

  /** Resolves when the master is found, which can take for ever. */
  async connect(): Promise<void> {
    if (this.#copy) return;
    const copy = this.client.duplicate({
      reserveClient: true,
      masterPoolSize: 1,
      replicaPoolSize: 0,
      passthroughClientErrorEvents: true,
    });
    this.#copy = copy;
    copy.on('error', this.#onError);
    copy.on('topology-change', this.#onChange);
    while (copy === this.#copy && !copy.isOpen) {
      // `connect` rejects after some time without a master. Call it again then.
      await copy.connect().catch(this.#onError);
    }
    if (copy === this.#copy) this.#look();
  }

  nodes(): readonly Server[] {
    return this.#servers;
  }

  attach(): void {
    this.client.on('ready', this.#onOpen);
    this.client.on('end', this.#onEnd);
  }

  detach(): void {
    this.client.off('ready', this.#onOpen);
    this.client.off('end', this.#onEnd);
    this.#end();
  }

  protected send(args: readonly string[]): Promise<unknown> {
    return this.#copy?.sendCommand(false, args, PLAINLY) ?? Promise.reject(new Error('not connected'));
  }

  /** Called when the application has connected its client. */
  readonly #onOpen = neutral((): void => void this.connect());

  /**
   * Called when the application has closed its client. A new copy is made when the application opens the client again.
   */
  readonly #onEnd = (): void => {
    this.#end();
    this.emit('close');
  };

  #end(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const copy = this.#copy;
    this.#copy = undefined;
    this.#isReady = false;
    copy?.destroy().catch(() => undefined);
  }

  /**
   * Records an error. Errors of Sentinels and of the connection for messages do not end the connection to the master.
   */
  readonly #onError = (error: unknown): void => {
    this.lastError = error instanceof Error ? error : new Error(String(error));
    if (this.lastError.message.startsWith('Master Client')) this.#lost();
  };

  readonly #onChange = ({ type }: { readonly type: string }): void => {
    if (type === 'MASTER_CHANGE') this.#lost();
  };

  /**
   * Called after an error or a change of the master. The copy then gets a new connection or continues with the old one,
   * and does not report which. So its state is checked again and again.
   */
  #lost(): void {
    if (this.#isReady) {
      this.#isReady = false;
      this.emit('close');
    }
    this.#timer ??= setTimeout(this.#again, LOOK_MS).unref();
  }

  readonly #again = (): void => {
    this.#timer = undefined;
    this.#look();
  };

  #look(): void {
    const copy = this.#copy;
    if (!copy || this.#isReady) return;
    if (copy.isReady && copy.getMasterNode()) {
      this.lastError = undefined;
      this.#isReady = true;
      this.emit('ready');
      return;
    }
    this.#lost();
    const now = performance.now();
    if (now - this.#asked < ASK_MS) return;
    this.#asked = now;
    if (copy.isReady) copy.sendCommand(false, ['PING'], PLAINLY).catch(() => undefined);
  }
}

/**
 * Receives messages through the copy of the client. The copy has a separate connection to the present master, for
 * messages only: that connection accepts only commands for subscriptions. So each heartbeat subscribes to an extra
 * channel, or unsubscribes from it again: the answer shows that the connection works.
 */
class SentinelMessages extends EventEmitter implements MessageConnection {
  /** The channels to which this object has subscribed through the present copy. */
  readonly #channels = new Set<string>();
  /**
   * Channels whose subscription the server has confirmed on this connection. The next request for any other channel
   * subscribes again, because the first subscription may never settle. This happens if the master dies meanwhile: the
   * client still tries to reach the dead master, although it has a connection to the new master (seen with 6.3).
   */
  readonly #confirmed = new Set<string>();
  #asked: SentinelClient | undefined;
  #beating: Promise<unknown> = Promise.resolve();
  #beats = false;

  constructor(
    private readonly driver: SentinelDriver,
    private readonly copy: () => SentinelClient | undefined,
  ) {
    super();
  }

  /**
   * A substitute for the socket. `destroy` cannot end the connection, but reports that messages have stopped. When the
   * present heartbeat has settled, `destroy` reports that messages arrive again.
   */
  get stream(): MessageConnection['stream'] {
    return {
      destroy: () => {
        this.#onClose();
        const answered = (): unknown => this.emit('ready');
        this.#beating.then(answered, answered);
      },
    };
  }

  async connect(): Promise<void> {
    this.driver.on('ready', this.#onReady);
    this.driver.on('close', this.#onClose);
    if (this.driver.status === 'ready') this.#onReady();
  }

  disconnect(): void {
    this.driver.off('ready', this.#onReady);
    this.driver.off('close', this.#onClose);
    for (const channel of this.#channels) this.#of(channel, 'unsubscribe').catch(() => undefined);
    this.#channels.clear();
    this.#confirmed.clear();
  }

  subscribe(channel: string): Promise<unknown> {
    const copy = this.copy();
    if (copy !== this.#asked) {
      this.#asked = copy;
      this.#channels.clear();
      this.#confirmed.clear();
      this.#beats = false;
    }
    return this.#confirmed.has(channel) ? this.#beat(channel) : this.#confirm(channel);
  }

  async #confirm(channel: string): Promise<void> {
    this.#channels.add(channel);
    await this.#of(channel, 'subscribe');
    // After a new connection the client already knows the channel, and resolves without a command to the server. So
    // send a heartbeat, too.
    await this.#beat(channel);
    this.#confirmed.add(channel);
  }

  #beat(channel: string): Promise<void> {
    this.#beats = !this.#beats;
    const beating = this.#of(`${channel}:beat`, this.#beats ? 'subscribe' : 'unsubscribe');
    this.#beating = beating;
    return beating;
  }

  /** Subscribes to an ordinary channel: only a Cluster has sharded channels. */
  ssubscribe(channel: string): Promise<unknown> {
    return this.subscribe(channel);
  }

  async sunsubscribe(): Promise<void> {}

  readonly #onReady = (): void => {
    this.emit('ready');
  };

  readonly #onClose = (): void => {
    this.#confirmed.clear();
    this.emit('close');
  };

  readonly #receive = (message: string, channel: string): void => {
    this.emit('message', channel, message);
  };

  #of(channel: string, what: 'subscribe' | 'unsubscribe'): Promise<void> {
    return this.copy()?.[what](channel, this.#receive) ?? Promise.reject(new Error('not connected'));
  }
}
