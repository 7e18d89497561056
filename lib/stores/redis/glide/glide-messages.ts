import { EventEmitter } from 'node:events';
import type { MessageConnection } from '../connection/driver.js';
import type { GlideClient, GlideMessage } from './client-types.js';
import { connectionIn, WHICH_CONNECTION } from './connection-name.js';
import { sendOne } from './glide-batch.js';

/** Time limit for the server's answer to a subscription, in milliseconds. */
const SUBSCRIBE_LIMIT_MS = 2_000;

/** The options of the copy that differ from those of the application's client. */
const OWN_OPTIONS = {
  clientName: 'nestjs-redlock-messages',
  /** `ProtocolVersion.RESP3`, which messages need. */
  protocol: 0,
  readFrom: 'primary',
  readOnly: false,
  lazyConnect: false,
  clientSideCache: undefined,
} as const;

/**
 * A connection for messages: a `GlideClient` of its own, with the settings of the application's client. GLIDE delivers
 * messages to a function that is given when a client is made, and repeats lost subscriptions without a word. So this
 * class compares the connection again and again, and makes a new client when it was replaced.
 */
export class GlideMessages extends EventEmitter implements MessageConnection {
  #copy: GlideClient | undefined;
  #connection = '';
  /** The channels that the server has confirmed. */
  readonly #confirmed = new Set<string>();
  #attempts = 0;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly client: GlideClient) {
    super();
  }

  get stream(): MessageConnection['stream'] {
    return { destroy: () => this.#lost(this.#copy) };
  }

  connect(): Promise<void> {
    return this.#open();
  }

  disconnect(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#copy?.close();
    this.#copy = undefined;
  }

  /** Subscribes to a channel, or checks the connection of a confirmed subscription. */
  async subscribe(channel: string): Promise<void> {
    const copy = this.#copy;
    if (!copy) throw new Error('not connected');
    if (this.#confirmed.has(channel)) {
      if ((await nameOf(copy)) !== this.#connection) this.#lost(copy);
      return;
    }
    await copy.subscribe([channel], SUBSCRIBE_LIMIT_MS);
    if (copy === this.#copy) this.#confirmed.add(channel);
  }

  ssubscribe(): Promise<never> {
    return Promise.reject(new Error('a `GlideClient` has no sharded channels'));
  }

  sunsubscribe(): Promise<never> {
    return this.ssubscribe();
  }

  async #open(): Promise<void> {
    let copy: GlideClient | undefined;
    let connection: string;
    try {
      copy = await this.#makeCopy();
      connection = await nameOf(copy);
    } catch {
      copy?.close();
      return this.#again();
    }
    if (this.#closed) return copy.close();
    this.#copy = copy;
    this.#connection = connection;
    this.#attempts = 0;
    this.emit('ready');
  }

  async #makeCopy(): Promise<GlideClient> {
    const { config, constructor } = this.client;
    const callback = ({ channel, message }: GlideMessage): void =>
      void this.emit('message', String(channel), String(message));
    return constructor.createClient({
      ...config,
      ...OWN_OPTIONS,
      pubsubSubscriptions: { channelsAndPatterns: {}, callback },
    });
  }

  #lost(copy: GlideClient | undefined): void {
    if (!copy || copy !== this.#copy) return;
    this.#copy = undefined;
    this.#confirmed.clear();
    copy.close();
    this.emit('close');
    this.#again();
  }

  #again(): void {
    if (this.#closed) return;
    this.#attempts++;
    this.#timer = setTimeout(() => void this.#open(), Math.min(this.#attempts * 20, 500)).unref();
  }
}

async function nameOf(copy: GlideClient): Promise<string> {
  const name = connectionIn(await sendOne(copy, WHICH_CONNECTION));
  if (name instanceof Error) throw name;
  return name;
}
