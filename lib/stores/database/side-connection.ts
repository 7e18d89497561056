import { asError } from '../../core/errors.js';
import { withTimeout } from '../../core/with-timeout.js';
import { connectInTime } from './connect-in-time.js';
import type { DatabaseClient, DatabaseDriver } from './database-client.js';

/** Milliseconds without a statement after which the connection is closed. Longer than a pause of the sweeper. */
const IDLE_MS = 15_000;

/** Milliseconds that a statement may take, also on a cold cache. */
const ANSWER_WITHIN_MS = 30_000;

/**
 * A connection for long work: to list locks, and to remove old rows. Locks and messages do not wait for it. It is opened
 * when it is needed.
 */
export class SideConnection<Client extends DatabaseClient> {
  #own: Client | undefined;
  /** Settles when {@link #own} is connected. */
  #connected: Promise<unknown> = Promise.resolve();
  /** Settles when the connection has answered all statements so far. */
  #idle: Promise<unknown> = Promise.resolve();
  #closing: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** @param answerWithin - milliseconds that a statement may take */
  constructor(
    private readonly driver: DatabaseDriver<Client>,
    private readonly answerWithin = ANSWER_WITHIN_MS,
  ) {}

  /** Runs a statement whose result is one text. Resolves to that text; `undefined` for null. */
  run(text: string, values: readonly unknown[]): Promise<string | undefined> {
    const answer = this.#idle.then(() => this.#send(text, values));
    this.#idle = answer.catch(() => undefined);
    return answer;
  }

  /** Ends the connection, because another one over the same network was lost. */
  discard(): Promise<void> {
    return this.#end();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end();
  }

  async #send(text: string, values: readonly unknown[]): Promise<string | undefined> {
    if (this.#isClosed) throw new Error('the store is closed');
    clearTimeout(this.#closing);
    try {
      const own = (this.#own ??= this.#open());
      await this.#connected;
      return await withTimeout(own.run(text, values), this.answerWithin);
    } catch (error) {
      // The next statement opens a new connection.
      void this.#end();
      throw this.driver.withAdvice(asError(error));
    } finally {
      if (this.#own) this.#closing = setTimeout(() => void this.#end(), IDLE_MS).unref();
    }
  }

  #open(): Client {
    const own = this.driver.newClient();
    own.onLost(() => {
      if (own === this.#own) void this.#end();
    });
    this.#connected = connectInTime(own);
    return own;
  }

  /** Ends the connection, also while it is being opened. */
  async #end(): Promise<void> {
    clearTimeout(this.#closing);
    const own = this.#own;
    this.#own = undefined;
    await own?.end();
  }
}
