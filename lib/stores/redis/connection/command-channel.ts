import type { Redis } from 'ioredis';
import { canSendNow } from './connection.js';
import { adviceOnConnection } from './connection-advice.js';
import type { Driver, Packed } from './driver.js';
import { leadsTo, type MasterAddress } from './master-address.js';
import type { Script } from '../scripts/script.js';
import { StallDetector } from './stall-detector.js';

const SILENT = new Error('has not answered for a while; check whether it hangs');

const OLD_MASTER = new Error(
  'the client that was passed in is still connected to a server that is the master no more, as a Sentinel says; give ' +
    'its options in `nodes` in place of the client, so that the connection is replaced at once',
);

const READS_DATA = new Error('LOADING the server is still reading its data into memory');
const LOADING = new Error(`${READS_DATA.message}; wait until it has`, { cause: READS_DATA });

/** The application did not connect its client, or has closed it. */
export const CLOSED = new Error(
  'the client that was passed in as `nodes` is not open; connect it before the module starts, such as with ' +
    '`await client.connect()`, and close it after the module has shut down',
);

/** How often a server that reads its data is asked whether it still does, in milliseconds. */
const LOADING_AGAIN_MS = 1_000;
export type { Packed } from './driver.js';

/**
 * Sends commands over a client now or never: what ioredis would queue is not sent (S15).
 */
export class CommandChannel {
  readonly #silence: StallDetector;
  #lastError: Error | undefined;
  #notConnected: Error | undefined;
  #lacksDatabase = false;
  /** A connection that is not ours and leads to a server that is the master no more. */
  #left: Redis['stream'] | undefined;
  #isLoading = false;
  #loadingTimer: NodeJS.Timeout | undefined;

  /**
   * @param opened - whether the client was made for us, so that its errors are ours to hear and its connections ours
   * to replace
   */
  constructor(
    readonly client: Driver,
    private readonly opened: boolean,
  ) {
    this.#silence = new StallDetector(client, opened);
    // A listener here would silence the errors of a client that is not ours.
    if (!opened) return;
    client.on('error', (error: Error & { command?: unknown }) => {
      // ioredis adds the command that failed, with its arguments: for AUTH, the password.
      delete error.command;
      this.#lastError = error;
      if (/DB index is out of range/.test(error.message)) this.#lacksDatabase = true;
    });
    client.on('connect', () => {
      this.#lacksDatabase = false;
    });
  }

  /** Whether a command would be written now, to a server that answers as far as is known. */
  get canSend(): boolean {
    return canSendNow(this.client) && !this.#silence.isSilent && !this.leadsToOldMaster;
  }

  /** The client of the user's is connected to a server that is the master no more, though it says that it is. */
  get leadsToOldMaster(): boolean {
    return (
      this.#left !== undefined && this.#left === (this.client as Redis).stream && canSendNow(this.client)
    );
  }

  /** The server has no database of the number that the connection is for: ioredis goes on with database 0. */
  get lacksDatabase(): boolean {
    return this.#lacksDatabase;
  }

  /** Nothing will be connected by itself: the application has to. */
  get isClosed(): boolean {
    return !this.opened && this.client.status === 'end';
  }

  /** There is a new connection, of which nothing bad is known. */
  connected(): void {
    this.#silence.end();
  }

  /** The master is there: a connection that leads elsewhere is replaced if it is ours, and else not used any more. */
  follow(master: MasterAddress): void {
    const { stream } = this.client as Redis;
    this.#left = undefined;
    if (leadsTo(stream, master)) return;
    if (this.opened) stream.destroy();
    else this.#left = stream;
  }

  /** Begins to listen to the client. */
  listen(): void {
    this.client.on('connect', this.#onConnect);
    this.#onConnect();
  }

  /** Takes what was added to the client away. */
  close(): void {
    this.client.off('connect', this.#onConnect);
    clearTimeout(this.#loadingTimer);
  }

  /** Connects a client that has not been connected yet. */
  async open(): Promise<void> {
    try {
      await this.client.connect();
    } catch (error) {
      // ioredis says only that the connection was closed; the reason came as an event.
      throw this.#lastError ?? error;
    }
  }

  /**
   * Runs a script by its hash, and with its text where the server does not know it and the answer is still `wanted`.
   *
   * ioredis can do that by itself, but it would do it for a lease that was released meanwhile, and so store a lock
   * that nobody holds (S15).
   */
  run(script: Script, packed: Packed, wanted: () => boolean = always): Promise<unknown> {
    return this.send(
      () => this.client.evalsha(script.sha, ...packed),
      (error) => {
        if (!isNoScript(error) || !wanted()) throw error;
        return this.send(() => this.client.eval(script.lua, ...packed));
      },
    );
  }

  /**
   * Sends a command, if it would be written now.
   *
   * Not an async function, and neither are those around it: at a hundred thousand commands a second their Promises are
   * what the time goes into.
   *
   * @param refused - what to do about an error that the server or the client answered with; by default it is thrown
   */
  send<T>(command: () => Promise<T>, refused: (error: Error) => Promise<T> = rethrow): Promise<T> {
    if (!this.canSend) return Promise.reject(this.#unreachable());
    this.#silence.asked();
    return started(command).then(this.#answered as (reply: T) => T, (error: Error) => {
      // Others, such as a time limit of the client's own, are no sign of life.
      if (isRefusal(error)) this.#silence.answered();
      else this.#silence.failed();
      return refused(this.explained(error));
    });
  }

  readonly #onConnect = (): void => {
    this.#isLoading = false;
    clearTimeout(this.#loadingTimer);
    if (this.client.status === 'connect' && !this.client.isCluster)
      this.#askWhetherLoading(this.client as Redis);
  };

  /** A client that is connected is not ready until the server has read its data, and does not say why. */
  #askWhetherLoading(client: Redis): void {
    if (client.status !== 'connect') return;
    this.#silence.asked();
    const answered = (info: string): void => {
      this.#silence.answered();
      this.#isLoading = /^loading:1/m.test(info);
      // It is asked again, so that it is not taken for dead.
      const again = (): void => this.#askWhetherLoading(client);
      if (this.#isLoading) this.#loadingTimer = setTimeout(again, LOADING_AGAIN_MS).unref();
    };
    client.info('persistence').then(answered, () => this.#silence.failed());
  }

  readonly #answered = (reply: unknown): unknown => {
    this.#silence.answered();
    return reply;
  };

  /** One error for all that cannot be sent for the same reason: while a node is away there can be thousands a second. */
  #unreachable(): Error {
    if (this.leadsToOldMaster) return OLD_MASTER;
    if (this.#isLoading && this.client.status === 'connect') return LOADING;
    if (this.#silence.isSilent) return SILENT;
    if (this.isClosed) return CLOSED;
    const cause = this.#lastError ?? this.client.lastError;
    if (!this.#notConnected || this.#notConnected.cause !== cause) {
      const { message } = cause ?? {};
      const reason = message === undefined ? '' : ` (${message})`;
      const advice = adviceOnConnection(message ?? '') ?? 'check that it is up and reachable';
      this.#notConnected = new Error(`not connected${reason}; ${advice}`, { cause });
    }
    return this.#notConnected;
  }

  /** What an error of the server means, in words that help; ends a connection that leads to a replica by now. */
  explained(error: Error): Error {
    if (error.message.startsWith('CROSSSLOT')) {
      return new Error(
        'the keys of one lock must be in one slot of the Cluster; give them a common hash tag, such as {orders}:1 and {orders}:2',
        { cause: error },
      );
    }
    // It was a master when we connected. After a fail-over its address may lead to the new one.
    if (error.message.startsWith('READONLY') && this.opened) this.client.stream?.destroy();
    return error;
  }
}

/** A client of the user's may throw where it should reject. */
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

/** The server answered, with an error. */
export function isRefusal(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

/** The server does not know the script by its hash. */
export function isNoScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

/** A command was refused for some of its keys, before anything was done: outside a user's rights, or in different slots. */
export function isAboutKeys({ message, cause }: Error): boolean {
  return /^(NOPERM|CROSSSLOT)/.test(cause instanceof Error ? cause.message : message);
}
