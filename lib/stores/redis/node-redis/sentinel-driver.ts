import { EventEmitter } from 'node:events';
import type { DriverOptions, MessageConnection, Server } from '../connection/driver.js';
import { PLAINLY, type SentinelClient } from './client-types.js';
import { NodeRedisDriver } from './node-redis-driver.js';
import { NodeRedisServer } from './node-redis-server.js';

/** How often a copy that is not connected is looked at, in milliseconds. */
const LOOK_MS = 50;

/** How often a copy that is not connected is asked something, which makes it look for the master, in milliseconds. */
const ASK_MS = 1_000;

/**
 * What `createSentinel` of node-redis returns. Commands go over a copy of it, with a connection of its own.
 *
 * The client lends its connection to one command after the other where several begin at once, and one that waits for it is
 * overtaken by those that come later, for as long as there are any (seen with 6.3). And of a connection that was
 * replaced it tells only whom it passes the errors of its parts on to.
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
      new NodeRedisServer(
        (args) => this.send(args),
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
      // After a while it gives up; it can be told to connect again.
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

  /** The application has connected its client. */
  readonly #onOpen = (): void => void this.connect();

  /** The application has closed its client; when it opens that again, there is another copy. */
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

  /** Those of Sentinels and of the connection for messages end no connection to the master. */
  readonly #onError = (error: unknown): void => {
    this.lastError = error instanceof Error ? error : new Error(String(error));
    if (this.lastError.message.startsWith('Master Client')) this.#lost();
  };

  readonly #onChange = ({ type }: { readonly type: string }): void => {
    if (type === 'MASTER_CHANGE') this.#lost();
  };

  /** There is another connection soon, or the same: which one it is, is not told. */
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
 * Messages over the copy's own connection for them, which goes where the master goes. It cannot be asked anything but to
 * subscribe and to unsubscribe, so a channel beside the others tells that it works.
 */
class SentinelMessages extends EventEmitter implements MessageConnection {
  /** Those of the copy that was asked last. */
  readonly #channels = new Set<string>();
  #asked: SentinelClient | undefined;
  #beating: Promise<unknown> = Promise.resolve();
  #beats = false;

  constructor(
    private readonly driver: SentinelDriver,
    private readonly copy: () => SentinelClient | undefined,
  ) {
    super();
  }

  /** Nothing is ended: messages are taken to arrive again when there is an answer. */
  get stream(): MessageConnection['stream'] {
    return {
      destroy: () => {
        this.emit('close');
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
  }

  subscribe(channel: string): Promise<unknown> {
    const copy = this.copy();
    if (copy !== this.#asked) {
      this.#asked = copy;
      this.#channels.clear();
    }
    if (!this.#channels.has(channel)) {
      this.#channels.add(channel);
      const subscribing = this.#of(channel, 'subscribe');
      subscribing.catch(() => this.#channels.delete(channel));
      return subscribing;
    }
    this.#beats = !this.#beats;
    this.#beating = this.#of(`${channel}:beat`, this.#beats ? 'subscribe' : 'unsubscribe');
    return this.#beating;
  }

  /** Only on a Cluster. */
  ssubscribe(channel: string): Promise<unknown> {
    return this.subscribe(channel);
  }

  async sunsubscribe(): Promise<void> {}

  readonly #onReady = (): void => {
    this.emit('ready');
  };

  readonly #onClose = (): void => {
    this.emit('close');
  };

  readonly #receive = (message: string, channel: string): void => {
    this.emit('message', channel, message);
  };

  #of(channel: string, what: 'subscribe' | 'unsubscribe'): Promise<void> {
    return this.copy()?.[what](channel, this.#receive) ?? Promise.reject(new Error('not connected'));
  }
}
