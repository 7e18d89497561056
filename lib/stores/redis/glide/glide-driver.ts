import { neutrally } from '../../../core/neutral.js';
import { AdaptedDriver } from '../connection/adapted-driver.js';
import type { DriverOptions } from '../connection/driver.js';
import type { GlideClient } from './client-types.js';
import { REQUEST_LIMIT_MS } from './glide-batch.js';

/** Milliseconds between two looks at a client that is connected. */
const LOOK_MS = 5_000;

/** Milliseconds between two looks at a client that is not connected. GLIDE connects again by itself. */
const LOOK_AGAIN_MS = 200;

/** The names of the errors that show a lost connection, or a server that does not answer. */
const OF_LOSS = new Set(['TimeoutError', 'ConnectionError', 'ClosingError']);

/** `true` if the error of a request shows that the connection is lost. Too many requests in flight do not show that. */
export function isLoss({ name }: Error): boolean {
  return OF_LOSS.has(name);
}

/**
 * A passed-in client of Valkey GLIDE, with the commands, answers, events and error names of ioredis.
 *
 * A client of GLIDE emits no events: it does not tell when it lost or replaced a connection, nor when the application
 * closed it. So a driver asks, with each command and every few seconds.
 */
export abstract class GlideDriver extends AdaptedDriver {
  readonly options: DriverOptions;
  #state: 'wait' | 'ready' | 'reconnecting' = 'wait';
  #isAttached = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(protected readonly client: GlideClient) {
    super();
    const { addresses, databaseId } = client.config;
    const [{ host, port = 6379 } = { host: 'localhost' }] = addresses;
    this.options = { host, port, db: databaseId };
  }

  get status(): string {
    return this.client.isClosed ? 'end' : this.#state;
  }

  /** Asks if the client is connected, and to which servers. Calls {@link found} or {@link lost}. */
  abstract override connect(): Promise<void>;

  attach(): void {
    this.#isAttached = true;
    this.#planLook();
  }

  detach(): void {
    this.#isAttached = false;
    clearTimeout(this.#timer);
  }

  /** Called when the client is connected. Returns `true` if it was not connected before. */
  protected found(): boolean {
    if (!this.#isAttached || this.#state === 'ready') return false;
    this.#state = 'ready';
    this.lastError = undefined;
    this.emit('ready');
    return true;
  }

  /** Called when the connection is lost, or leads to another server. */
  protected lost(): void {
    if (!this.#isAttached || this.#state !== 'ready') return;
    this.#state = 'reconnecting';
    this.emit('close');
    this.#planLook();
  }

  /** Gives the error of a request the words of ioredis, and keeps the reason of a loss. */
  protected failed(error: Error): Error {
    if (!isLoss(error)) return error;
    const isTimeout = error.name === 'TimeoutError';
    const reason = isTimeout ? new Error(`no answer for ${REQUEST_LIMIT_MS} ms`, { cause: error }) : error;
    this.lastError = reason;
    return isTimeout ? reason : new Error('Connection is closed', { cause: reason });
  }

  /** The timer serves all callers (S30). */
  #planLook(): void {
    clearTimeout(this.#timer);
    if (!this.#isAttached || this.client.isClosed) return;
    const pause = this.#state === 'ready' ? LOOK_MS : LOOK_AGAIN_MS;
    this.#timer = neutrally(() => setTimeout(() => void this.#look(), pause).unref());
  }

  async #look(): Promise<void> {
    if (this.client.isClosed) this.lost();
    else await this.connect().catch(() => undefined);
    this.#planLook();
  }
}
