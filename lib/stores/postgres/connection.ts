import type { Client, ClientConfig } from 'pg';
import { asError } from '../../core/errors.js';
import { withTimeout } from '../../core/with-timeout.js';
import { withAdvice } from './connection-advice.js';
import { newClient, type OwnClient, valueOf } from './own-client.js';

/** Milliseconds without an answer after which a server gets no further requests until it answers. */
const SILENT_AFTER_MS = 1_000;

/**
 * Milliseconds without an answer after which a connection counts as dead. When packets are lost, TCP itself would retry
 * for a quarter of an hour.
 */
const HUNG_AFTER_MS = 5_000;

/** The longest pause between two attempts to connect, in milliseconds. */
const LONGEST_PAUSE_MS = 500;

/**
 * Error code of a server that became a standby or read-only. The connection is then replaced, because a new connection
 * may lead to the primary.
 */
const READ_ONLY = '25006';

/** Events of a connection. */
export interface ConnectionEvents {
  /** Called after each connect, before all other requests. Throws when the server must not be used. */
  readonly prepare: (client: Client) => Promise<void>;
  readonly ready: () => void;
  readonly lost: () => void;
}

/**
 * One connection, which is replaced when it is lost. A request without a connection fails at once. A request without an
 * answer is not repeated on the next connection: it could store a lease that has ended meanwhile (S15).
 */
export class Connection {
  #own: OwnClient | undefined;
  #isReady = false;
  #isClosed = false;
  #attempts = 0;
  #again: NodeJS.Timeout | undefined;
  #failure: Error | undefined;
  #unanswered = 0;
  #since = 0;
  /** Settles when the connection has answered all statements so far. */
  #idle: Promise<unknown> = Promise.resolve();
  #watch: NodeJS.Timeout | undefined;

  constructor(
    private readonly config: ClientConfig,
    private readonly events: ConnectionEvents,
  ) {}

  /**
   * Resolves when the connection is ready. Rejects when the first attempt fails; further attempts follow in the
   * background.
   */
  async open(): Promise<void> {
    if (this.#isReady) return;
    const error = await this.#connect();
    if (error) throw error;
  }

  /** `true` if the store can expect an answer. */
  get available(): boolean {
    return this.#isReady && !(this.#unanswered > 0 && performance.now() - this.#since > SILENT_AFTER_MS);
  }

  /** Runs a statement whose result is one value. Resolves to its text; `undefined` for null. */
  async run(text: string, values: readonly unknown[] = []): Promise<string | undefined> {
    const own = this.#own;
    if (!own || !this.#isReady) throw this.#away();
    try {
      this.#asked();
      return await this.#inTurn(own, () => valueOf(own.client, text, values));
    } catch (error) {
      if ((error as { code?: string }).code === READ_ONLY) this.#lose(own, asError(error));
      throw error;
    } finally {
      this.#unanswered--;
      this.#since = performance.now();
    }
  }

  /** Sends one statement at a time: `pg` 8 warns of a statement during another one, and `pg` 9 will refuse it. */
  #inTurn<T>(own: OwnClient, send: () => Promise<T>): Promise<T> {
    const answer = this.#idle.then(() => {
      if (own !== this.#own) throw this.#away();
      return send();
    });
    this.#idle = answer.catch(() => undefined);
    return answer;
  }

  /** Ends the connection, so that a new one replaces it. */
  drop(reason: string): void {
    if (this.#own) this.#lose(this.#own, new Error(reason));
  }

  /** Milliseconds since the server last answered, while a request has no answer; otherwise 0. */
  get silence(): number {
    return this.#unanswered > 0 ? performance.now() - this.#since : 0;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#isReady = false;
    clearTimeout(this.#again);
    clearTimeout(this.#watch);
    const own = this.#own;
    this.#own = undefined;
    await own?.end();
  }

  async #connect(): Promise<Error | undefined> {
    const own = newClient(this.config);
    const { client } = own;
    this.#own = own;
    // Do not wait for statements on the previous connection: they may never get an answer.
    this.#idle = Promise.resolve();
    client.on('error', (error) => this.#lose(own, error));
    client.on('end', () => this.#lose(own, new Error('the connection was closed')));
    try {
      await client.connect();
      if (own !== this.#own) throw this.#away();
      await withTimeout(this.events.prepare(client), HUNG_AFTER_MS);
      if (own !== this.#own) throw this.#away();
    } catch (thrown) {
      const error = withAdvice(asError(thrown));
      this.#lose(own, error);
      // `#lose` does not end a client that is no longer the present one, such as after a loss during the preparation.
      void own.end();
      return error;
    }
    this.#attempts = 0;
    this.#failure = undefined;
    this.#isReady = true;
    this.events.ready();
    return undefined;
  }

  #lose(own: OwnClient, error: Error): void {
    if (own !== this.#own) return;
    this.#own = undefined;
    this.#isReady = false;
    this.#failure = error;
    // `end` closes the socket at once when a request has no answer.
    void own.end();
    if (this.#isClosed) return;
    this.events.lost();
    const pause = Math.min(20 * 2 ** this.#attempts++, LONGEST_PAUSE_MS) * (0.5 + Math.random() / 2);
    this.#again = setTimeout(() => void this.#connect(), pause);
  }

  #asked(): void {
    if (this.#unanswered++ === 0) this.#since = performance.now();
    if (!this.#watch) this.#lookLater();
  }

  #look(): void {
    this.#watch = undefined;
    if (this.#unanswered === 0) return;
    if (this.silence >= HUNG_AFTER_MS) return this.drop(`no answer for ${HUNG_AFTER_MS} ms`);
    this.#lookLater();
  }

  #lookLater(): void {
    // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
    // Node read the answer before the time limit takes effect.
    this.#watch = setTimeout(setImmediate, SILENT_AFTER_MS, () => this.#look()).unref();
  }

  #away(): Error {
    const reason = this.#failure ? `: ${this.#failure.message}` : '';
    return new Error(`not connected${reason}`, { cause: this.#failure });
  }
}
