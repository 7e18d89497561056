import { elapsedSince, now } from '../../core/clock.js';
import { NoTimeError, NotSentError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { NodeCheck } from '../../core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  KeyState,
  KeyWaiter,
  LeaseExchange,
  LockDirectory,
  LockStore,
  QueueDirectory,
  ReleaseRequest,
  StarvationGuard,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../../core/ports.js';
import { RecentKeys } from '../../core/recent-keys.js';
import type { StoreTerms } from '../../core/store-factory.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { Connection } from './connection.js';
import type { DatabaseClient, DatabaseDriver } from './database-client.js';
import type { BatchAnswer, BatchRequest } from './request.js';
import { SideConnection } from './side-connection.js';
import { Sweeper, type SweeperTerms } from './sweeper.js';
import { storedKey, storedOwner } from './text.js';
import { Batches } from './batches.js';

/** The number of keys that one statement of a scan examines, held or not. */
const PAGE = 1_000;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/** Receives messages for the waiters of this process. */
export interface WaiterMessages {
  /** The name of this process in messages. */
  readonly channel: string;
  /** `true` if messages arrive. */
  readonly ready: boolean;
  /** Opens what messages need before the first waiter comes. Never rejects. */
  open?(): Promise<void>;
  listen(waiter: WaiterId, onMessage: OnMessage): Subscription;
  close(): Promise<void> | void;
}

/** A connection, as far as it runs statements. */
export interface Runs {
  run(text: string, values: readonly unknown[]): Promise<string | undefined>;
}

/** A part of the list of keys. */
export interface ScanPage {
  /** The stored forms of held keys. */
  readonly keys: readonly string[];
  /** The key after which the next part begins; `null` after the last part. */
  readonly next: string | null;
}

/** The answer to an exchange; MySQL has 1 and 0 in place of true and false. */
export interface ExchangeAnswer {
  /** The server's time, in milliseconds since 1970. */
  readonly at: number;
  readonly late: boolean | number;
  readonly done: boolean | number;
}

/** The verdict on a server. */
export interface ServerCheck {
  /** The reason why the server must not be used for locks. */
  readonly unfit: string | undefined;
  readonly warnings: readonly string[];
}

/**
 * A store in one database, whose rows are the locks. They end by the server's clock. An acquisition or a release takes
 * one round trip, for any number of keys and leases. Each database has its own statements for that.
 *
 * The store opens a connection for requests, and another one while the process lists locks or removes old rows.
 */
export abstract class DatabaseStore<Client extends DatabaseClient>
  implements LockStore, WaitQueue, StarvationGuard, LockDirectory, QueueDirectory, LeaseExchange, StoreHealth
{
  abstract readonly name: string;
  readonly modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
  /** The connection for requests. */
  protected readonly connection: Connection<Client>;
  /** The connection for long work. */
  protected readonly side: SideConnection<Client>;
  protected abstract readonly messages: WaiterMessages;
  /** The codes of errors of a server that refuses to write. */
  protected abstract readonly refusesToWrite: RegExp;
  readonly #batches: Batches;
  readonly #waiters = new RecentKeys();
  readonly #sweeper: Sweeper;
  readonly #keyPrefix: string;
  readonly #looksOnly: boolean;

  constructor(
    driver: DatabaseDriver<Client>,
    { keyPrefix, looksOnly = false, ready, lost, warnOnce }: StoreTerms,
  ) {
    this.#keyPrefix = keyPrefix;
    this.#looksOnly = looksOnly;
    this.connection = new Connection(driver, {
      prepare: async (client) => {
        const weaknesses = await this.prepare(client, !looksOnly, (time) => {
          // The connection may lead to another server, or to one whose clock was set.
          this.#batches.clock.forget();
          this.#batches.clock.learn(time);
        });
        for (const weakness of weaknesses) warnOnce(`${this.name}: ${weakness}`);
      },
      ready: () => {
        this.#batches.ready();
        ready();
        if (looksOnly) return;
        this.#sweeper.begin();
        void this.messages.open?.();
      },
      lost,
      replaced: () => {
        this.#batches.ready();
        // A network that has forgotten one idle connection may have forgotten the others.
        this.doubtMessages();
        void this.side.discard();
      },
    });
    const channel = (): string => this.messages.channel;
    this.#batches = new Batches({
      keyPrefix,
      waiters: this.#waiters,
      get channel() {
        return channel();
      },
      run: (keys, asked, onRepeat) => this.run(keys, asked, onRepeat),
      blocked: (keys, error) => this.blocked(keys, error),
    });
    this.side = new SideConnection(driver);
    this.#sweeper = new Sweeper({
      claim: (lasts) => this.claimSweep(lasts),
      sweep: (part, after, most) => this.sweep(part, after, most),
    });
  }

  /**
   * Checks if the server can be used, and creates what is missing.
   *
   * @param mayMake - `true` to create it
   * @param learn - called with the server's time
   * @returns the settings of the server that make locks less safe, each with its remedy
   * @throws UnfitStoreError when the server must not be used
   */
  protected abstract prepare(
    client: Client,
    mayMake: boolean,
    learn: (time: number) => void,
  ): Promise<readonly string[]>;

  /** Tests or replaces the connection for messages, because another one over the same network was lost. */
  protected abstract doubtMessages(): void;

  /**
   * Runs requests in one statement, which is one transaction.
   *
   * @param keys - all keys of all requests
   * @param onRepeat - called before the statement is sent a second time, because the connection was lost
   */
  protected abstract run(
    keys: readonly string[],
    asked: BatchRequest,
    onRepeat: () => void,
  ): Promise<BatchAnswer>;

  /**
   * Finds the keys whose rows others have locked, if this error shows that the statement waited too long for a row.
   * Without this, a row that somebody has locked by hand would fail the renewals of all locks that share a statement with
   * it.
   */
  protected abstract blocked(keys: readonly string[], error: Error): Promise<ReadonlySet<string>>;

  /**
   * Asks for the turn of sweeping. Uses the connection for requests, so that only the process with the turn needs the one
   * for long work.
   */
  protected abstract claimSweep(lasts: number): ReturnType<SweeperTerms['claim']>;

  /** Sweeps a part of the rows, over the connection for long work. */
  protected abstract sweep(...part: Parameters<SweeperTerms['sweep']>): ReturnType<SweeperTerms['sweep']>;

  /** Examines up to `most` keys after a key, over the connection for long work. */
  protected abstract scanPage(prefix: string, after: string, most: number): Promise<ScanPage>;

  /** Releases holders of a key in its stored form, and resolves to the ids of those that were released. */
  protected abstract releaseHolders(
    connection: Runs,
    key: string,
    ids: readonly string[],
  ): Promise<readonly string[]>;

  /**
   * Puts a lease in the place of another, in one statement, which may be sent again.
   *
   * @param known - the id of the lease, and then the ids of those that it replaces
   * @param deadline - in milliseconds since 1970 on the server's clock
   */
  protected abstract runExchange(
    keys: readonly string[],
    known: readonly string[],
    owner: string,
    since: number,
    deadline: number,
  ): Promise<ExchangeAnswer>;

  protected abstract describe(): Promise<ServerCheck>;

  /** Writes a row and undoes that. */
  protected abstract tryToWrite(): Promise<unknown>;

  abstract leave(waiter: WaiterId): Promise<void>;

  abstract holdBack(waiter: WaiterId, waited: number): Promise<boolean>;

  abstract letPass(waiter: WaiterId): Promise<void>;

  abstract read(keys: readonly string[]): Promise<readonly KeyState[]>;

  abstract waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]>;

  async connect(): Promise<void> {
    await this.connection.open();
    if (!this.#looksOnly) await this.messages.open?.();
  }

  get available(): boolean {
    return this.connection.available;
  }

  get idle(): boolean {
    return this.connection.isIdle;
  }

  get subscribed(): boolean {
    return this.messages.ready;
  }

  contended(keys: readonly string[]): boolean {
    return this.#waiters.any(keys);
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    this.#batches.acquire(requests, ordered, tell);
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    this.#batches.extend(leases, ttl, tell);
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    this.#batches.release(requests, tell);
  }

  async exchange({ lease, replaces, since, limit }: ExchangeRequest): Promise<boolean> {
    const { clock } = this.#batches;
    const asked = now();
    for (let isAgain = false; ; isAgain = true) {
      const left = limit - elapsedSince(asked);
      if (lease.ended) throw new NotSentError();
      if (left <= 0) throw new NoTimeError('no time was left to send the request');
      const known = [lease.id, ...replaces];
      const deadline = (clock.now() ?? 0) + left;
      const keys = this.stored(lease.keys);
      const { at, late, done } = await this.runExchange(
        keys,
        known,
        storedOwner(lease.owner),
        since,
        deadline,
      );
      clock.learn(at);
      if (!late) return Boolean(done);
      // The estimate of the server's clock may have been behind. This answer has corrected it.
      if (isAgain) throw new NoTimeError('got the request too late, and did nothing');
    }
  }

  listen(waiter: WaiterId, onMessage: OnMessage): Subscription {
    return this.messages.listen(waiter, onMessage);
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    for (let after: string | null = ''; after !== null;) {
      const { keys, next }: ScanPage = await this.scanPage(storedKey(this.#keyPrefix, prefix), after, PAGE);
      if (keys.length > 0) yield keys.map((key) => key.slice(this.#keyPrefix.length));
      after = next;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    // A second request would find nothing to release, and not say what the first one has released.
    const once = { run: (text: string, sent: readonly unknown[]) => this.connection.run(text, sent, false) };
    return this.releaseHolders(once, storedKey(this.#keyPrefix, key), ids);
  }

  async check(): Promise<NodeCheck> {
    const { unfit, warnings } = await this.describe();
    if (unfit !== undefined) return { state: 'unfit', reason: unfit, warnings: [] };
    try {
      await this.tryToWrite();
    } catch (error) {
      const { code = '', message } = error as { code?: string; message: string };
      if (!this.refusesToWrite.test(code)) throw error;
      return { state: 'unfit', reason: `refuses to store locks: ${message}`, warnings: [] };
    }
    return { state: 'voting', warnings };
  }

  async close(): Promise<void> {
    this.#sweeper.end();
    this.#batches.close();
    await Promise.all([this.messages.close(), this.side.close(), this.connection.close()]);
  }

  protected stored(keys: readonly string[]): string[] {
    return keys.map((key) => storedKey(this.#keyPrefix, key));
  }
}
