import { randomBytes } from 'node:crypto';
import type { ClientConfig } from 'pg';
import type { Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { withTimeout } from '../../core/with-timeout.js';
import { Connection } from '../database/connection.js';
import { waiterName } from '../database/request.js';
import { type OwnClient, postgresDriver } from './own-client.js';

/** Milliseconds within which a test message must arrive. */
const ARRIVES_WITHIN_MS = 1_000;

/** Milliseconds until the next test after a test message that did not arrive. */
const TRY_AGAIN_MS = 30_000;

/** Milliseconds between two checks of a connection with listeners. */
const HEARTBEAT_MS = 1_000;

/**
 * Longest delay in milliseconds before a waiter asks again after its messages have stopped. Each waiter takes a random
 * delay up to this limit, so that the waiters do not all ask at once.
 */
const UNSUBSCRIBED_JITTER_MS = 100;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/** Functions for sending a message, and for reporting that messages do not arrive. */
export interface MessageTerms {
  /** Sends a message over the connection for commands. */
  readonly send: (channel: string, text: string) => Promise<unknown>;
  readonly undelivered: () => void;
  /** Called when a connection that was lost has been replaced: other idle connections may be lost, too. */
  readonly replaced: () => void;
}

/**
 * Receives messages for the waiters of this process, on one channel and a separate connection. Messages are hints: a
 * lost message only costs time.
 *
 * A pooler that assigns a server connection for each transaction accepts the `LISTEN`, but delivers no messages. So the
 * process first tests if a message to itself arrives.
 */
export class Messages {
  /** The channel for messages to this process. */
  readonly channel = `redlock_${randomBytes(8).toString('hex')}`;
  readonly #connection: Connection<OwnClient>;
  readonly #listeners = new Map<string, OnMessage>();
  #opening: Promise<void> | undefined;
  #isReady = false;
  #isTrying = false;
  /** The number of lost connections. */
  #losses = 0;
  #isClosed = false;
  #onTestMessage: ((text: string) => void) | undefined;
  /** Timer until the next test, while messages do not arrive. */
  #again: NodeJS.Timeout | undefined;
  #heartbeat: NodeJS.Timeout | undefined;

  constructor(
    config: ClientConfig,
    private readonly terms: MessageTerms,
  ) {
    this.#connection = new Connection(postgresDriver(config), {
      prepare: async ({ client, run }) => {
        client.on('notification', ({ payload = '' }) => this.#take(payload));
        await run(`listen "${this.channel}"`);
      },
      ready: () => undefined,
      lost: () => this.#lost(),
      replaced: () => {
        this.#lost();
        terms.replaced();
        void this.try();
      },
    });
  }

  get ready(): boolean {
    return this.#isReady;
  }

  /** Tests the connection, because another one over the same network was lost. */
  test(): void {
    this.#connection.test();
  }

  /** Connects, and tests if messages arrive. Never rejects: without messages waiters poll. */
  open(): Promise<void> {
    return (this.#opening ??= this.#open());
  }

  async #open(): Promise<void> {
    this.#beat();
    await this.#connection.open().catch(() => undefined);
    await this.try();
  }

  /** Tests if messages arrive. */
  async try(): Promise<void> {
    this.#endPause();
    if (this.#isClosed || this.#isReady || this.#isTrying || !this.#connection.available) return;
    this.#isTrying = true;
    const losses = this.#losses;
    const arrives = await this.#testArrives();
    this.#isTrying = false;
    if (this.#isClosed) return;
    if (arrives) return this.#setReady(this.#connection.available);
    if (arrives === undefined || losses !== this.#losses) return;
    this.terms.undelivered();
    this.#again = setTimeout(() => void this.try(), TRY_AGAIN_MS).unref();
  }

  #lost(): void {
    // The next connection may lead to another server: test it at once, without the rest of the pause.
    this.#endPause();
    this.#losses++;
    this.#setReady(false);
  }

  #endPause(): void {
    clearTimeout(this.#again);
    this.#again = undefined;
  }

  listen(waiter: WaiterId, onMessage: OnMessage): Subscription {
    const name = waiterName(waiter);
    this.#listeners.set(name, onMessage);
    const isReady = (): boolean => this.#isReady;
    return {
      get ready() {
        return isReady();
      },
      stop: () => this.#listeners.delete(name),
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#isReady = false;
    this.#endPause();
    clearTimeout(this.#heartbeat);
    this.#listeners.clear();
    await this.#connection.close();
  }

  /** `true` if the test message arrived; `undefined` when it could not be sent. */
  async #testArrives(): Promise<boolean | undefined> {
    const sent = randomBytes(8).toString('hex');
    const arrived = new Promise<void>((resolve) => {
      this.#onTestMessage = (text) => {
        if (text === sent) resolve();
      };
    });
    try {
      await this.terms.send(this.channel, sent);
    } catch {
      return undefined;
    }
    return withTimeout(arrived, ARRIVES_WITHIN_MS).then(
      () => true,
      () => false,
    );
  }

  #take(text: string): void {
    const [after, released, name] = text.split(' ', 3);
    if (name === undefined) return this.#onTestMessage?.(text);
    this.#listeners.get(name)?.(Number(after), Number(after) === 0, released === '-' ? undefined : released);
  }

  #setReady(isReady: boolean): void {
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    for (const told of this.#listeners.values())
      told(isReady ? 0 : Math.random() * UNSUBSCRIBED_JITTER_MS, false);
  }

  /** Checks the connection: a server that hangs does not close it, but sends no messages. */
  #beat(): void {
    const beat = (): void => {
      if (this.#isClosed) return;
      this.#beat();
      if (this.#connection.silence > HEARTBEAT_MS / 2) this.#connection.drop('no answer');
      else if (!this.#connection.available) return;
      else if (!this.#isReady) {
        if (!this.#again) void this.try();
      } else if (this.#listeners.size > 0) this.#connection.test();
    };
    // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
    // Node read the answer before the time limit takes effect.
    this.#heartbeat = setTimeout(setImmediate, HEARTBEAT_MS, beat).unref();
  }
}
