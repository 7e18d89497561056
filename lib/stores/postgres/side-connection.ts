import type { ClientConfig } from 'pg';
import { asError } from '../../core/errors.js';
import { withTimeout } from '../../core/with-timeout.js';
import { withAdvice } from './connection-advice.js';
import { newClient, type OwnClient, valueOf } from './own-client.js';

/** Milliseconds without a statement after which the connection is closed. Longer than a pause of the sweeper. */
const IDLE_MS = 15_000;

/** Milliseconds that a statement may take, also on a cold cache. */
const ANSWER_WITHIN_MS = 30_000;

/**
 * A connection for long work: to list locks, and to remove old rows. Locks and messages do not wait for it. It is opened
 * when it is needed.
 */
export class SideConnection {
  #own: Promise<OwnClient> | undefined;
  /** Settles when the connection has answered all statements so far. */
  #idle: Promise<unknown> = Promise.resolve();
  #closing: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(private readonly config: ClientConfig) {}

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
      const { client } = await (this.#own ??= this.#open());
      return await withTimeout(valueOf(client, text, values), ANSWER_WITHIN_MS);
    } catch (error) {
      // The next statement opens a new connection.
      void this.#end();
      throw withAdvice(asError(error));
    } finally {
      if (this.#own) this.#closing = setTimeout(() => void this.#end(), IDLE_MS).unref();
    }
  }

  async #open(): Promise<OwnClient> {
    const own = newClient(this.config);
    own.client.on('error', () => this.#lost(own));
    own.client.on('end', () => this.#lost(own));
    try {
      await own.client.connect();
      return own;
    } catch (error) {
      void own.end();
      throw error;
    }
  }

  #lost(own: OwnClient): void {
    void this.#own?.then(
      (present) => {
        if (present === own) void this.#end();
      },
      () => undefined,
    );
  }

  async #end(): Promise<void> {
    clearTimeout(this.#closing);
    const own = this.#own;
    this.#own = undefined;
    await own?.then(
      ({ end }) => end(),
      () => undefined,
    );
  }
}
