import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { waiterName } from '../database/request.js';

/** Seconds until an answer without messages. Long waits cost the server less, and a shorter one ends sooner at its end. */
const WAIT_S = 1;

/**
 * Seconds between two looks of the server for messages. Waiters that have just come wait for locks that are held
 * shortly; later on, less frequent looks save the server half of the time.
 */
const STEP_S = 0.01;
const LATER_STEP_S = 0.05;
const LATER_AFTER_MS = 2_000;

/** Pause in milliseconds after a request that failed. */
const AGAIN_MS = 200;

/**
 * Longest delay in milliseconds before a waiter asks again after its messages have stopped. Each waiter takes a random
 * delay up to this limit, so that the waiters do not all ask at once.
 */
const UNSUBSCRIBED_JITTER_MS = 100;

/** Milliseconds for which a message for a waiter that has gone is remembered. A row that stays costs one more request then. */
const GONE_FOR_MS = 60_000;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/** A message as the procedure `listen` selects it. */
interface Message {
  readonly waiter: string;
  readonly told: number;
  readonly after: number;
  /** Says that the waiter may try at once. 1 or `true`, or 0 or `false`: servers differ. */
  readonly turn: number | boolean;
  readonly released: string | null;
}

interface Listener {
  readonly tell: OnMessage;
  /** The time of the last message on the server's clock. */
  heard: number | undefined;
}

/** Runs the procedure `listen`, and resolves to its answer. */
export type Listen = (process: string, known: string, wait: number, step: number) => Promise<string>;

/**
 * Receives messages for the waiters of this process: while there are waiters, one statement after the other waits for
 * messages on the server, on a separate connection. Messages are hints, and stay in the rows of the waiters.
 */
export class Messages {
  /** The name of this process in the rows of its waiters. */
  readonly channel = randomBytes(8).toString('hex');
  readonly #listeners = new Map<string, Listener>();
  /**
   * The times of messages for waiters that have gone without their rows, such as when `leave` failed. Without them the
   * server would answer each request at once, with the same messages.
   */
  readonly #gone = new Map<string, { readonly heard: number; readonly since: number }>();
  #isReady = true;
  #isListening = false;
  /** The time at which the last waiter came. */
  #cameAt = 0;
  readonly #end = new AbortController();

  constructor(private readonly run: Listen) {}

  get ready(): boolean {
    return this.#isReady && !this.#end.signal.aborted;
  }

  listen(waiter: WaiterId, onMessage: OnMessage): Subscription {
    const name = waiterName(waiter);
    this.#listeners.set(name, { tell: onMessage, heard: undefined });
    this.#cameAt = performance.now();
    this.#gone.delete(name);
    if (!this.#isListening) void this.#listen();
    const isReady = (): boolean => this.ready;
    return {
      get ready() {
        return isReady();
      },
      stop: () => this.#listeners.delete(name),
    };
  }

  close(): void {
    this.#end.abort();
    this.#listeners.clear();
  }

  async #listen(): Promise<void> {
    this.#isListening = true;
    // After the end, each request would fail at once, and the loop would leave no time for anything else.
    while (this.#listeners.size > 0 && !this.#end.signal.aborted) {
      const step = performance.now() - this.#cameAt > LATER_AFTER_MS ? LATER_STEP_S : STEP_S;
      try {
        this.#take(JSON.parse(await this.run(this.channel, this.#known, WAIT_S, step)) as Message[]);
        this.#setReady(true);
      } catch {
        this.#setReady(false);
        await pause(AGAIN_MS, undefined, { ref: false, signal: this.#end.signal }).catch(() => undefined);
      }
    }
    this.#gone.clear();
    this.#isListening = false;
  }

  get #known(): string {
    for (const [name, { since }] of this.#gone)
      if (performance.now() - since > GONE_FOR_MS) this.#gone.delete(name);
    return [...this.#listeners, ...this.#gone]
      .flatMap(([name, { heard }]) => (heard === undefined ? [] : [`${name}@${heard}`]))
      .join(',');
  }

  #take(messages: readonly Message[]): void {
    for (const { waiter, told, after, turn, released } of messages) {
      const listener = this.#listeners.get(waiter);
      if (!listener) {
        this.#gone.set(waiter, { heard: told, since: performance.now() });
        continue;
      }
      listener.heard = told;
      // The statement that looks for messages begins, and takes the time, before it reads the rows. It can read a message
      // that was written in between, whose time has then not come by the time of the statement.
      listener.tell(turn ? 0 : Math.ceil(after), Boolean(turn), released ?? undefined);
    }
  }

  #setReady(isReady: boolean): void {
    if (isReady === this.#isReady || this.#end.signal.aborted) return;
    this.#isReady = isReady;
    for (const { tell } of this.#listeners.values())
      tell(isReady ? 0 : Math.random() * UNSUBSCRIBED_JITTER_MS, false);
  }
}
