import { asError } from '../../core/errors.js';
import { withTimeout } from '../../core/with-timeout.js';
import { connectInTime } from './connect-in-time.js';
import type { DatabaseClient, DatabaseDriver } from './database-client.js';

/** Milliseconds without an answer after which a server gets no further requests until it answers. */
const SILENT_AFTER_MS = 1_000;

/**
 * Milliseconds without an answer after which a connection counts as dead. When packets are lost, TCP itself would retry
 * for a quarter of an hour.
 */
const HUNG_AFTER_MS = 5_000;

/** Milliseconds without traffic after which the connection is tested. */
const TEST_AFTER_MS = 2_000;

/**
 * A network may have forgotten a connection that had no traffic for `QUIET_MS`. If a request on it then gets no answer
 * for `DOUBT_MS`, a second connection is opened, and takes over if it is ready first. A connection in use is not
 * doubted: with each slow answer of a busy server, more connections would make the server slower still.
 */
const QUIET_MS = 500;
const DOUBT_MS = 100;

/**
 * Milliseconds in which a request waits for the connection that replaces a lost one. A loss that ends sooner is not
 * reported.
 */
const REPLACED_WITHIN_MS = 1_000;

/** The longest pause between two attempts to connect, in milliseconds. */
const LONGEST_PAUSE_MS = 500;

/** Events of a connection. */
export interface ConnectionEvents<Client> {
  /**
   * Called after each connect, before all other requests. Limits the time of each of its statements. Throws when the
   * server must not be used.
   */
  readonly prepare: (client: Client) => Promise<void>;
  readonly ready: () => void;
  /** Called when the connection is lost and was not replaced at once, and after each failed attempt to connect. */
  readonly lost: () => void;
  /** Called when a new connection has replaced the previous one, and `lost` was not called. */
  readonly replaced: () => void;
}

/**
 * One connection, which is replaced when it is lost. A request without a connection fails, unless the connection was
 * just lost.
 *
 * A request whose connection is lost is sent once more on the next connection (S15), unless the caller forbids it. So
 * all other requests must be idempotent, and acquisitions must have a deadline (S16).
 */
export class Connection<Client extends DatabaseClient> {
  #own: Client | undefined;
  /** Clients that are not in use yet. */
  readonly #connecting = new Set<Client>();
  #isReady = false;
  #isClosed = false;
  #attempts = 0;
  #again: NodeJS.Timeout | undefined;
  #failure: Error | undefined;
  #unanswered = 0;
  /** Time of the last answer, or of the first request after it. */
  #since = 0;
  #lostAt = -Infinity;
  /** The first attempt to replace a lost connection, while it lasts. */
  #replacing: Promise<void> | undefined;
  /** Settles when the connection has answered all statements so far. */
  #idle: Promise<unknown> = Promise.resolve();
  #watch: NodeJS.Timeout | undefined;
  #doubt: NodeJS.Timeout | undefined;
  #test: NodeJS.Timeout | undefined;

  constructor(
    private readonly driver: DatabaseDriver<Client>,
    private readonly events: ConnectionEvents<Client>,
  ) {}

  /**
   * Resolves when the connection is ready. Rejects when the first attempt fails; further attempts follow in the
   * background.
   */
  async open(): Promise<void> {
    if (this.#isReady) return;
    const error = await this.#connect();
    if (!error) return this.events.ready();
    this.#failed(error);
    throw error;
  }

  /** `true` if the next answer may need a new connection. `false` if requests fail at once, because none is possible. */
  get isIdle(): boolean {
    if (!this.#isReady) return this.#replacing !== undefined;
    return this.#unanswered === 0 && performance.now() - this.#since >= QUIET_MS;
  }

  /** `true` if the store can expect an answer. */
  get available(): boolean {
    return this.#isReady && !(this.#unanswered > 0 && performance.now() - this.#since > SILENT_AFTER_MS);
  }

  /**
   * Runs a statement whose result is one text. Resolves to that text; `undefined` for null.
   *
   * @param onRepeat - called before the statement is sent a second time, because the connection was lost; `false` if it
   *   must not be sent a second time
   */
  async run(
    text: string,
    values: readonly unknown[] = [],
    onRepeat: (() => void) | false = () => undefined,
  ): Promise<string | undefined> {
    if (!this.#isReady) await this.#replacing;
    const own = this.#own;
    try {
      return await this.#send(text, values);
    } catch (error) {
      if (onRepeat === false || own === undefined || own === this.#own) throw error;
      await this.#replacing;
      if (!this.#isReady) throw error;
      onRepeat();
      return this.#send(text, values);
    }
  }

  /** @param quietFor - milliseconds without traffic before this request after which the connection is doubted */
  async #send(text: string, values: readonly unknown[], quietFor = QUIET_MS): Promise<string | undefined> {
    const own = this.#own;
    if (!own || !this.#isReady) throw this.#away();
    try {
      this.#asked(own, quietFor);
      return await this.#inTurn(own, () => own.run(text, values));
    } catch (error) {
      if (this.driver.replaces(asError(error))) this.#lose(own, asError(error));
      throw error;
    } finally {
      // A replaced connection has its own count.
      if (own === this.#own) {
        this.#unanswered--;
        this.#since = performance.now();
      }
    }
  }

  /** Sends one statement at a time: a package may warn of a statement during another one, or refuse it. */
  #inTurn<T>(own: Client, send: () => Promise<T>): Promise<T> {
    const answer = this.#idle.then(() => {
      if (own !== this.#own) throw this.#away();
      return send();
    });
    this.#idle = answer.catch(() => undefined);
    return answer;
  }

  /** Tests the connection, such as after another connection over the same network was lost. */
  test(): void {
    if (this.#isReady && this.#unanswered === 0) this.#send(this.driver.test, [], 0).catch(() => undefined);
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
    for (const timer of [this.#again, this.#watch, this.#doubt, this.#test]) clearTimeout(timer);
    const open = [...this.#connecting, ...(this.#own ? [this.#own] : [])];
    this.#own = undefined;
    await Promise.all(open.map((own) => own.end()));
  }

  /** Opens a connection and prepares it. Does not use it yet. */
  async #newOwn(): Promise<Client> {
    const own = this.driver.newClient();
    this.#connecting.add(own);
    let failure: Error | undefined;
    own.onLost((error) => {
      failure ??= error;
      this.#lose(own, error);
    });
    try {
      await connectInTime(own);
      await this.events.prepare(own);
      if (failure) throw failure;
      return own;
    } catch (thrown) {
      void own.end();
      throw this.driver.withAdvice(asError(thrown));
    } finally {
      this.#connecting.delete(own);
    }
  }

  /** Connects, and resolves to an error when that fails. */
  async #connect(): Promise<Error | undefined> {
    try {
      this.#use(await this.#newOwn());
      return this.#isClosed ? this.#away() : undefined;
    } catch (error) {
      return asError(error);
    }
  }

  #use(own: Client): void {
    if (this.#isClosed) return void own.end();
    this.#own = own;
    // Do not wait for statements on the previous connection: they may never get an answer.
    this.#idle = Promise.resolve();
    this.#unanswered = 0;
    this.#since = performance.now();
    this.#attempts = 0;
    this.#failure = undefined;
    this.#isReady = true;
    this.#testLater();
  }

  /** Plans the next attempt after an attempt has failed. */
  #failed(error: Error): void {
    this.#failure = error;
    if (this.#isClosed) return;
    this.events.lost();
    const pause = Math.min(20 * 2 ** this.#attempts++, LONGEST_PAUSE_MS) * (0.5 + Math.random() / 2);
    this.#again = setTimeout(() => void this.#reconnect(), pause);
  }

  async #reconnect(): Promise<void> {
    const error = await this.#connect();
    if (error) this.#failed(error);
    else this.events.ready();
  }

  #lose(own: Client, error: Error): void {
    if (own !== this.#own) return;
    const isRepeated = performance.now() - this.#lostAt < REPLACED_WITHIN_MS;
    this.#lostAt = performance.now();
    this.#own = undefined;
    this.#isReady = false;
    this.#unanswered = 0;
    this.#failure = error;
    // `end` closes the socket at once when a request has no answer.
    void own.end();
    if (this.#isClosed) return;
    // A server that closes each connection must not cause attempts without a pause.
    if (isRepeated) this.#failed(error);
    else this.#replacing = this.#replaceLost().finally(() => (this.#replacing = undefined));
  }

  async #replaceLost(): Promise<void> {
    const connected = this.#connect();
    const error = await withTimeout(connected, REPLACED_WITHIN_MS).catch(() => 'late' as const);
    if (error === undefined) this.events.replaced();
    else if (error !== 'late') this.#failed(error);
    else if (!this.#isClosed) {
      this.events.lost();
      void connected.then((later) => (later ? this.#failed(later) : this.events.ready()));
    }
  }

  #asked(own: Client, quietFor: number): void {
    if (this.#unanswered++ > 0) return;
    const asked = performance.now();
    const isQuiet = asked - this.#since >= quietFor;
    this.#since = asked;
    if (!this.#watch) this.#lookLater();
    if (!isQuiet) return;
    clearTimeout(this.#doubt);
    const isSilent = (): boolean => own === this.#own && this.#unanswered > 0 && asked === this.#since;
    // If the event loop was blocked, the answer may have arrived, but Node has not read it yet.
    this.#doubt = setTimeout(setImmediate, DOUBT_MS, () => {
      if (isSilent()) void this.#takeOver(own, isSilent);
    }).unref();
  }

  /** Opens a second connection, which replaces the first one if that is still silent then. */
  async #takeOver(own: Client, isSilent: () => boolean): Promise<void> {
    const next = await this.#newOwn().catch(() => undefined);
    if (!next) return;
    if (!isSilent()) return void next.end();
    this.#use(next);
    this.events.replaced();
    // This rejects the requests without an answer, which are then sent on the new connection.
    void own.end();
  }

  #testLater(): void {
    clearTimeout(this.#test);
    this.#test = setTimeout(() => {
      if (performance.now() - this.#since >= TEST_AFTER_MS / 2) this.test();
      if (this.#isReady) this.#testLater();
    }, TEST_AFTER_MS / 2).unref();
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
