import type { Redis } from 'ioredis';
import { NotSentError } from '../../../core/errors.js';
import { canSendNow } from './connection.js';
import { adviceOnConnection } from './connection-advice.js';
import type { Driver } from './driver.js';
import { leadsTo, type MasterAddress } from './master-address.js';
import { isSlotMoving, MovingSlotError } from './moving-slot.js';
import { neutral } from '../../../core/neutral.js';
import { type ScriptRunner, scriptRunnerOf } from './script-runner.js';
import type { Packed, Script } from '../scripts/script.js';
import { StallDetector } from './stall-detector.js';

const SILENT_TEXT = 'has not answered for a while; check whether the server hangs';

/** The settings that keep a network from forgetting the idle connection of a client of the application. */
const KEEP_ALIVE_ADVICE =
  'if a network forgets idle connections (NAT, load balancer), set `keepAlive: 10_000` in the options of the client in ' +
  '`nodes` (of a `Cluster` in `redisOptions`; for node-redis `pingInterval: 10_000`), or give its options instead of ' +
  'the client';

const DEMOTED =
  'its server has become a replica, which refuses writes (READONLY), and the client in `nodes` stays connected to it; set ' +
  "`reconnectOnError: (error) => error.message.startsWith('READONLY')` in the options of the client (node-redis has no " +
  'such option: close the client and connect it again), or give its options instead of the client';

const SILENT = new Error(SILENT_TEXT);
const SILENT_CLIENT = new Error(`${SILENT_TEXT}; ${KEEP_ALIVE_ADVICE}`);

const OLD_MASTER = new Error(
  'the client in `nodes` is still connected to a former master: a Sentinel reports another server as the master; give the ' +
    'options of the client instead of the client, so that the library can replace the connection at once',
);

const READS_DATA = new Error('LOADING the server is still reading its data into memory');
const LOADING = new Error(`${READS_DATA.message}; wait until it has finished`, { cause: READS_DATA });

/** The error of a client that the application did not connect, or has closed. */
export const CLOSED = new Error(
  'the client in `nodes` is not open; connect it before the module starts, for example with ' +
    '`await client.connect()`, and close it after the module has shut down',
);

/** Milliseconds between two checks of a server that loads its data. */
const LOADING_AGAIN_MS = 1_000;

/**
 * Milliseconds without an answer after which a connection is idle. If an idle connection is lost, a network may have
 * forgotten it long before, so that the requests on it met no server.
 */
const IDLE_AFTER_MS = 1_000;

/** Longest time in milliseconds that a request waits for a new connection before it is repeated. */
const REPEAT_WITHIN_MS = 1_000;

/** The error of a client that the application has subscribed to channels. */
const SUBSCRIBED = new Error(
  'the client in `nodes` is subscribed to channels, so it can send no other commands; give a client of its own, such as ' +
    '`client.duplicate()`, or the options of the client',
);

/** The errors of ioredis, and of a server, for a command on a connection that is subscribed to channels. */
const ON_SUBSCRIBER = /subscriber mode|are allowed in this context/;

/** The errors of clients for a request whose connection was lost. */
const LOST = /max retries per request limit|Connection is closed|socket closed|ECONNRESET|EPIPE|ETIMEDOUT/i;

/**
 * The error of a request that met a dead connection: an idle connection was lost before the answer came, or just before
 * the request. A request that is idempotent, or was not sent, may be repeated once on the next connection.
 */
export class DeadConnectionError extends Error {}

/** Sends a command immediately or not at all: a command that ioredis would queue is not sent (S15). */
export class CommandChannel {
  /**
   * Number of connections that were lost so far, and of failed attempts to connect. If the number changes while a command
   * is under way, a client of the application may have sent the command a second time.
   */
  losses = 0;
  /** Called when {@link hanging} becomes the reason of a passed-in client. */
  onHang: (() => void) | undefined;
  readonly #silence: StallDetector;
  #lastError: Error | undefined;
  #notConnected: Error | undefined;
  #lacksDatabase = false;
  /** The socket through which a client of the application is still connected to a former master. */
  #left: Redis['stream'] | undefined;
  #isLoading = false;
  #loadingTimer: NodeJS.Timeout | undefined;
  #isConnected = false;
  /** The time at which an idle connection was lost, by the monotonic clock; `undefined` if the last loss was another. */
  #diedIdleAt: number | undefined;
  #lost: Error | undefined;
  /** Called with `true` for a new connection, and with `false` when the channel is closed. */
  readonly #waiting = new Set<(connected: boolean) => void>();

  readonly #scripts: ScriptRunner;

  /**
   * @param opened - `true` if the library made the client, and so handles its errors and replaces its connections
   * @param advise - called with a problem of a passed-in client and its remedy
   */
  constructor(
    readonly client: Driver,
    private readonly opened: boolean,
    private readonly advise: (advice: string) => void = () => undefined,
  ) {
    this.#scripts = scriptRunnerOf(client);
    this.#silence = new StallDetector(client, opened, () => this.onHang?.());
    // Add no listener for `error` to a client of the application: it would hide errors of the client from the
    // application.
    if (!opened) return;
    client.on('error', (error: Error & { command?: unknown }) => {
      // ioredis adds the failed command and its arguments to the error. The arguments of AUTH contain the password.
      delete error.command;
      this.#lastError = error;
      if (/DB index is out of range/.test(error.message)) this.#lacksDatabase = true;
    });
    client.on('connect', () => {
      this.#lacksDatabase = false;
    });
  }

  /** `true` if a command would be written immediately, to a server that is neither silent nor a former master. */
  get canSend(): boolean {
    return canSendNow(this.client) && !this.#silence.isSilent && !this.leadsToOldMaster;
  }

  /** `true` if a passed-in client is connected to a former master that still reports itself as the master. */
  get leadsToOldMaster(): boolean {
    return (
      this.#left !== undefined && this.#left === (this.client as Redis).stream && canSendNow(this.client)
    );
  }

  /** `true` if the server does not have the database that the options name. ioredis continues with database 0. */
  get lacksDatabase(): boolean {
    return this.#lacksDatabase;
  }

  /** `true` if a client of the application is closed, so that only the application can connect it again. */
  get isClosed(): boolean {
    return !this.opened && this.client.status === 'end';
  }

  /** Set while the connection of a passed-in client counts as dead. The client may never fail its commands. */
  get hanging(): Error | undefined {
    return this.#silence.hangs ? SILENT_CLIENT : undefined;
  }

  /** Milliseconds since the last answer or new connection. */
  get quietFor(): number {
    return this.#silence.quietFor;
  }

  /**
   * `true` if the connection has not been used for a while, or if it was lost in that state a short while ago. The first
   * commands on it do not change that: a network may have forgotten the connection. A server that is known to be down is
   * not idle: no command waits for it, so other nodes need not get more time (S3).
   */
  get isIdle(): boolean {
    if (this.#hasJustDied) return true;
    return this.quietFor >= IDLE_AFTER_MS && this.#silence.silentFor < IDLE_AFTER_MS && this.canSend;
  }

  /** Resets the state for a new connection. */
  connected(): void {
    this.#isConnected = true;
    this.#silence.end();
    this.#tellWaiting(true);
  }

  /** Called when the connection is lost, and after each failed attempt to connect. */
  disconnected(): void {
    this.losses++;
    if (!this.#isConnected) return;
    this.#isConnected = false;
    const wasIdle = this.#silence.quietFor >= IDLE_AFTER_MS;
    this.#diedIdleAt = wasIdle ? performance.now() : undefined;
    if (wasIdle && !this.opened && this.#silence.isAwaited)
      this.advise(`requests on an idle connection were not answered, and it was lost; ${KEEP_ALIVE_ADVICE}`);
  }

  /**
   * Waits for a new connection, because an idle connection was lost. Resolves to `false` if there is none in time.
   */
  reconnected(): Promise<boolean> {
    if (this.#isConnected) return Promise.resolve(true);
    return new Promise((resolve) => {
      const settle = (connected: boolean): void => {
        clearTimeout(timer);
        this.#waiting.delete(settle);
        resolve(connected);
      };
      const timer = setTimeout(settle, REPEAT_WITHIN_MS, false);
      this.#waiting.add(settle);
    });
  }

  #tellWaiting(connected: boolean): void {
    for (const settle of this.#waiting) settle(connected);
  }

  /**
   * Takes the new address of the master. A connection to another server is replaced if the library made the client;
   * otherwise the connection is no longer used.
   */
  follow(master: MasterAddress): void {
    const { stream } = this.client as Redis;
    this.#left = undefined;
    if (leadsTo(stream, master)) return;
    if (this.opened) stream.destroy();
    else this.#left = stream;
  }

  /** Adds the listeners to the client. */
  listen(): void {
    this.client.on('connect', this.#onConnect);
    this.#onConnect();
  }

  /** Removes the listeners from the client. */
  close(): void {
    this.client.off('connect', this.#onConnect);
    clearTimeout(this.#loadingTimer);
    this.#silence.close();
    this.#tellWaiting(false);
  }

  /** Connects a client that has not been connected yet. */
  async open(): Promise<void> {
    try {
      await this.client.connect();
    } catch (error) {
      // The error of ioredis says only that the connection was closed. An earlier `error` event contained the reason.
      throw this.#lastError ?? error;
    }
  }

  /**
   * Runs a script by its hash. If the server does not know the script and the answer is still `wanted`, sends the text
   * of the script.
   *
   * ioredis can send the text by itself. But ioredis would also do so after the lease was released, and so store a lock
   * that nobody holds (S15).
   */
  runOnce(script: Script, packed: Packed, wanted: () => boolean = always): Promise<unknown> {
    return this.send(
      () => this.#scripts.evalsha(script.sha, ...packed),
      (error) => {
        if (!isNoScript(error)) throw error;
        return this.#sendText(script, packed, wanted, error);
      },
    );
  }

  /**
   * Runs an idempotent script, as {@link runOnce} does. If the request met a dead connection and the answer is still
   * `wanted`, runs the script once more on the next connection.
   */
  run(script: Script, packed: Packed, wanted: () => boolean = always): Promise<unknown> {
    return this.send(
      () => this.#scripts.evalsha(script.sha, ...packed),
      async (error) => {
        if (isNoScript(error)) return this.#sendText(script, packed, wanted, error);
        if (!wanted()) throw error;
        if (!(error instanceof DeadConnectionError && (await this.reconnected()) && wanted())) throw error;
        return this.runOnce(script, packed, wanted);
      },
    );
  }

  #sendText(script: Script, packed: Packed, wanted: () => boolean, noScript: Error): Promise<unknown> {
    if (!wanted()) throw new NotSentError(noScript);
    return this.send(() => this.#scripts.eval(script.lua, ...packed));
  }

  /**
   * Sends a command, if it would be written immediately.
   *
   * This function and its callers are not `async`: at a hundred thousand commands a second, their Promises would take
   * most of the time.
   *
   * @param refused - handles an error of the server or the client; by default it throws the error
   */
  send<T>(command: () => Promise<T>, refused: (error: Error) => T | Promise<T> = rethrow): Promise<T> {
    if (!this.canSend) return Promise.reject(this.#unreachable()).catch(refused);
    this.#silence.asked();
    return started(command).then(this.#answered as (reply: T) => T, (error: Error) => {
      // Only an error that the server sent shows that it answers. A time limit of the client shows nothing.
      if (isRefusal(error)) this.#silence.answered();
      else this.#silence.failed();
      return refused(this.explained(error));
    });
  }

  /** An event of the client, which the application may have connected in a request (S30). */
  readonly #onConnect = neutral((): void => {
    this.#isLoading = false;
    clearTimeout(this.#loadingTimer);
    if (this.client.status === 'connect' && !this.client.isCluster)
      this.#askWhetherLoading(this.client as Redis);
  });

  /**
   * Asks a server if it still loads its data. While the server loads, the client is connected but not ready, and gives
   * no reason.
   */
  #askWhetherLoading(client: Redis): void {
    if (client.status !== 'connect') return;
    this.#silence.asked();
    const answered = (info: string): void => {
      this.#silence.answered();
      this.#isLoading = /^loading:1/m.test(info);
      // Ask again: each answer shows that the server does not hang.
      const again = (): void => this.#askWhetherLoading(client);
      if (this.#isLoading) this.#loadingTimer = setTimeout(again, LOADING_AGAIN_MS).unref();
    };
    client.info('persistence').then(answered, () => this.#silence.failed());
  }

  readonly #answered = (reply: unknown): unknown => {
    this.#silence.answered();
    // The command ran on the old master, so the new master may lack its effect.
    if (this.leadsToOldMaster) throw OLD_MASTER;
    return reply;
  };

  /**
   * The reason why a command cannot be sent. Commands with the same reason share one error object, because there can be
   * thousands of commands a second.
   */
  #unreachable(): Error {
    if (this.leadsToOldMaster) return OLD_MASTER;
    if (this.#isLoading && this.client.status === 'connect') return LOADING;
    if (this.#silence.isSilent) return this.opened ? SILENT : SILENT_CLIENT;
    if (this.isClosed) return CLOSED;
    const cause = this.#lastError ?? this.client.lastError;
    const Kind = this.#hasJustDied ? DeadConnectionError : Error;
    if (this.#notConnected?.cause !== cause || this.#notConnected?.constructor !== Kind) {
      const { message } = cause ?? {};
      const reason = message === undefined ? '' : ` (${message})`;
      const advice = adviceOnConnection(message ?? '') ?? 'check that the server is up and reachable';
      this.#notConnected = new Kind(`not connected${reason}; ${advice}`, { cause });
    }
    return this.#notConnected;
  }

  /** `true` if an idle connection was lost a short while ago. */
  get #hasJustDied(): boolean {
    return this.#diedIdleAt !== undefined && performance.now() - this.#diedIdleAt < REPEAT_WITHIN_MS;
  }

  /** Says that the connection was lost, in place of the text of the client. All requests in flight share the error. */
  #lostBecause(cause: Error): Error {
    if (this.#lost?.cause !== cause) {
      const Kind = this.#hasJustDied ? DeadConnectionError : Error;
      const advice = !this.opened && this.#hasJustDied ? `; ${KEEP_ALIVE_ADVICE}` : '';
      this.#lost = new Kind(`the connection was lost before the answer came${advice}`, { cause });
    }
    return this.#lost;
  }

  /** Replaces the error of a lost connection. Ends a connection whose server has become a replica. */
  explained(error: Error): Error {
    if (isSlotMoving(error)) return new MovingSlotError(error);
    if (!this.opened && ON_SUBSCRIBER.test(error.message)) return SUBSCRIBED;
    if (LOST.test(error.message) && !isRefusal(error)) return this.#lostBecause(error);
    // The server was a master, and became a replica in a fail-over. A new connection to its address may lead to the new
    // master.
    if (error.message.startsWith('READONLY')) {
      if (this.opened) this.client.stream?.destroy();
      else if (!('reconnectOnError' in this.client.options && this.client.options.reconnectOnError))
        this.advise(DEMOTED);
    }
    return error;
  }
}

/** Calls the command. A passed-in client may throw instead of rejecting. */
function started<T>(command: () => Promise<T>): Promise<T> {
  try {
    return command();
  } catch (error) {
    return Promise.reject(error as Error);
  }
}

function always(): boolean {
  return true;
}

function rethrow(error: Error): never {
  throw error;
}

/** `true` if the server answered with an error. */
export function isRefusal(error: unknown): error is Error {
  if (error instanceof MovingSlotError || error instanceof NotSentError) return true;
  return error instanceof Error && error.name === 'ReplyError';
}

/** `true` if the server does not know the script by its hash. */
export function isNoScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

/** The codes of errors that concern the whole server, and so every request of a command. */
const OF_THE_SERVER =
  /^(READONLY|LOADING|BUSY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|NOAUTH|WRONGPASS|MOVED|ASK) /;

/**
 * `true` if the error of a command may concern only one of its requests. Examples: the user has no right to a key, a key
 * has a foreign value, or the text of the script was not sent because one lease has ended. Each request can then be sent
 * in its own command, because all requests are idempotent.
 */
export function mayConcernOne(error: Error): boolean {
  const { cause } = error;
  const refusal: unknown = isRefusal(error) ? error : cause;
  return isRefusal(refusal) && !OF_THE_SERVER.test(refusal.message);
}
