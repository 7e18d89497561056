import { randomBytes } from 'node:crypto';
import type { Client, ClientConfig } from 'pg';
import type { Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { withTimeout } from '../../core/with-timeout.js';
import { Connection, valueOf } from './connection.js';
import { waiterName } from './request.js';

/** How long the message that tries the way may take once it is sent, in milliseconds. */
const HEARD_WITHIN_MS = 1_000;

/** How often the way is tried again on which no message came, in milliseconds. */
const TRY_AGAIN_MS = 30_000;

/** How often a connection that somebody listens on must answer, in milliseconds. */
const HEARTBEAT_MS = 1_000;

/** For how long at most waiters are left asleep when messages cease to arrive, in milliseconds: not all of them ask at once. */
const UNSUBSCRIBED_JITTER_MS = 100;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/** What the messages are told with, and who is told that none come. */
export interface MessageTerms {
  /** Sends a message over the connection for commands. */
  readonly send: (channel: string, text: string) => Promise<unknown>;
  readonly unheard: () => void;
}

/**
 * Messages to those of this process who wait, over a connection of its own, on one channel. They are hints: one that is lost
 * costs time and nothing else.
 *
 * A pooler that gives a server connection to each transaction takes the `LISTEN`, and passes no message on. So a message to
 * ourselves must come first.
 */
export class Messages {
  /** Where messages to this process are sent. */
  readonly channel = `redlock_${randomBytes(8).toString('hex')}`;
  readonly #connection: Connection;
  readonly #listeners = new Map<string, OnMessage>();
  #opening: Promise<void> | undefined;
  #isReady = false;
  #isTrying = false;
  /** How often the connection was lost. */
  #losses = 0;
  #isClosed = false;
  #heard: ((text: string) => void) | undefined;
  /** Until the way is tried again on which no message came. */
  #again: NodeJS.Timeout | undefined;
  #heartbeat: NodeJS.Timeout | undefined;

  constructor(
    config: ClientConfig,
    private readonly terms: MessageTerms,
  ) {
    this.#connection = new Connection(config, {
      prepare: async (client) => {
        client.on('notification', ({ payload = '' }) => this.#take(payload));
        await valueOf(client as Client, `listen "${this.channel}"`);
      },
      ready: () => undefined,
      lost: () => {
        // The next connection may lead elsewhere: it is tried at once.
        this.#endPause();
        this.#losses++;
        this.#setReady(false);
      },
    });
  }

  get ready(): boolean {
    return this.#isReady;
  }

  /** Never rejects: without messages waiters poll. */
  open(): Promise<void> {
    return (this.#opening ??= this.#open());
  }

  async #open(): Promise<void> {
    this.#beat();
    await this.#connection.open().catch(() => undefined);
    await this.try();
  }

  /** Finds out whether messages come. */
  async try(): Promise<void> {
    this.#endPause();
    if (this.#isClosed || this.#isReady || this.#isTrying || !this.#connection.available) return;
    this.#isTrying = true;
    const losses = this.#losses;
    const isHeard = await this.#hearsItself();
    this.#isTrying = false;
    if (this.#isClosed) return;
    if (isHeard) return this.#setReady(this.#connection.available);
    if (isHeard === undefined || losses !== this.#losses) return;
    this.terms.unheard();
    this.#again = setTimeout(() => void this.try(), TRY_AGAIN_MS).unref();
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

  /** `undefined` when nothing could be sent. */
  async #hearsItself(): Promise<boolean | undefined> {
    const sent = randomBytes(8).toString('hex');
    const heard = new Promise<void>((resolve) => {
      this.#heard = (text) => {
        if (text === sent) resolve();
      };
    });
    try {
      await this.terms.send(this.channel, sent);
    } catch {
      return undefined;
    }
    return withTimeout(heard, HEARD_WITHIN_MS).then(
      () => true,
      () => false,
    );
  }

  #take(text: string): void {
    const [after, released, name] = text.split(' ', 3);
    if (name === undefined) return this.#heard?.(text);
    this.#listeners.get(name)?.(Number(after), Number(after) === 0, released === '-' ? undefined : released);
  }

  #setReady(isReady: boolean): void {
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    for (const told of this.#listeners.values())
      told(isReady ? 0 : Math.random() * UNSUBSCRIBED_JITTER_MS, false);
  }

  /** A server that hangs ends no connection, and its messages do not come. */
  #beat(): void {
    const beat = (): void => {
      this.#beat();
      if (this.#connection.silence > 0) this.#connection.drop('no answer');
      else if (!this.#connection.available) return;
      else if (!this.#isReady) {
        if (!this.#again) void this.try();
      } else if (this.#listeners.size > 0) this.#connection.run('select 1').catch(() => undefined);
    };
    // When the thread was blocked, the answer may be there and unread: it comes first.
    this.#heartbeat = setTimeout(setImmediate, HEARTBEAT_MS, beat).unref();
  }
}
