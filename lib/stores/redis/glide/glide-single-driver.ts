import { asError } from '../../../core/errors.js';
import { neutrally } from '../../../core/neutral.js';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { Server } from '../connection/driver.js';
import type { GlideClient } from './client-types.js';
import { connectionIn, WHICH_CONNECTION } from './connection-name.js';
import { REQUEST_LIMIT_MS, sendBatch } from './glide-batch.js';
import { GlideDriver } from './glide-driver.js';
import { GlideMessages } from './glide-messages.js';

/** Milliseconds between two requests on a connection that was lost. GLIDE connects again by itself. */
const ASK_AGAIN_MS = 200;

/**
 * The driver for a `GlideClient`.
 *
 * GLIDE replaces a lost connection without a word, and the next answer may come from a server that restarted, or from
 * another server at the same address, whose vote must not count yet (S12). So each command travels with a question for
 * the connection. If the answer names another connection than before, the driver reports a loss and a new connection
 * before the caller gets the answer.
 */
export class GlideSingleDriver extends GlideDriver {
  readonly isCluster = false;
  readonly address: string;
  readonly #servers: readonly Server[];
  #connection: string | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(client: GlideClient) {
    super(client);
    const { host, port, db } = this.options;
    this.address = `${host}:${port}${db ? `/${db}` : ''}`;
    this.#servers = [
      new AdaptedServer(
        (args) => this.ask(args),
        this.options,
        () => new GlideMessages(client),
      ),
    ];
  }

  async connect(): Promise<void> {
    await this.#send([]);
  }

  nodes(): readonly Server[] {
    return this.#servers;
  }

  override detach(): void {
    super.detach();
    this.#endTimer();
  }

  protected async ask(args: readonly string[]): Promise<unknown> {
    const [answer] = await this.#send([args]);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  async #send(commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
    let answers: readonly unknown[];
    try {
      answers = await sendBatch(this.client, [WHICH_CONNECTION, ...commands]);
    } catch (error) {
      throw this.#failed(asError(error));
    }
    const [answer, ...rest] = answers;
    const connection = answer instanceof Error ? answer : connectionIn(answer);
    // Without the right to ask, an answer cannot count.
    if (connection instanceof Error) {
      this.lastError = connection;
      this.#askAgain();
      throw connection;
    }
    this.#heard(connection);
    return rest;
  }

  #heard(connection: string): void {
    const isOther = this.#connection !== undefined && this.#connection !== connection;
    this.#connection = connection;
    if (this.isDetached) return;
    if (isOther && this.state === 'ready') this.#lose();
    if (this.state === 'ready') return;
    this.state = 'ready';
    this.#endTimer();
    this.lastError = undefined;
    this.emit('ready');
  }

  #failed(error: Error): Error {
    const isTimeout = error.name === 'TimeoutError';
    // Other errors, such as that of too many requests in flight, do not show that the connection is lost. But a connection
    // that was lost before must be looked for again.
    if (!isTimeout && error.name !== 'ConnectionError' && error.name !== 'ClosingError') {
      this.#askAgain();
      return error;
    }
    const cause = isTimeout ? new Error(`no answer for ${REQUEST_LIMIT_MS} ms`, { cause: error }) : error;
    this.lastError = cause;
    if (this.state === 'ready') this.#lose();
    this.#askAgain();
    return isTimeout ? cause : new Error('Connection is closed', { cause });
  }

  #lose(): void {
    this.state = 'reconnecting';
    this.emit('close');
  }

  /** Asks until GLIDE is connected again. The timer serves all callers (S30). */
  #askAgain(): void {
    if (this.isDetached || this.client.isClosed || this.state === 'ready') return;
    const ask = (): void => {
      this.#timer = undefined;
      this.connect().catch(() => undefined);
    };
    this.#timer ??= neutrally(() => setTimeout(ask, ASK_AGAIN_MS).unref());
  }

  #endTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
