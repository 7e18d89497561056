import type { ClientConfig } from 'pg';
import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { NodeCheck } from '../../core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  KeyState,
  KeyWaiter,
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
import { Connection } from '../database/connection.js';
import {
  type Found,
  type FoundWaiter,
  keyWaiterOf,
  stateOf,
  type TurnAnswer,
  waiterName,
} from '../database/request.js';
import { SideConnection } from '../database/side-connection.js';
import { Sweeper } from '../database/sweeper.js';
import { storedKey, storedOwner } from '../database/text.js';
import { Turns } from '../database/turns.js';
import { Messages } from './messages.js';
import { type OwnClient, postgresDriver } from './own-client.js';
import { type PostgresOptions, schemaOf } from './postgres.options.js';
import { prepare, type ServerDescription, unfitBecause, weakBecause } from './preparation.js';
import { DESCRIBE } from './sql/fitness.js';

/** The number of keys that one statement of a scan examines, held or not. */
const PAGE = 1_000;

/**
 * Error codes of a PostgreSQL that refuses to write: no disk space, no memory, too many objects, missing rights,
 * read-only.
 */
const REFUSES_TO_WRITE = /^(53|42501|25006)/;

/**
 * A store in one PostgreSQL. Locks in its rows end by the server's clock. An acquisition or a release takes one round
 * trip, for any number of keys and leases.
 *
 * The store opens two connections: one for requests, one for messages to waiters. A third one is open while the process
 * lists locks or removes old rows.
 */
export class PostgresStore
  implements LockStore, WaitQueue, StarvationGuard, LockDirectory, QueueDirectory, StoreHealth
{
  readonly name: string;
  readonly modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
  readonly #connection: Connection<OwnClient>;
  readonly #messages: Messages;
  readonly #turns: Turns;
  readonly #waiters = new RecentKeys();
  readonly #side: SideConnection<OwnClient>;
  readonly #sweeper: Sweeper;
  readonly #schema: string;
  readonly #keyPrefix: string;
  readonly #looksOnly: boolean;

  constructor(options: PostgresOptions, terms: StoreTerms) {
    const { listenConnectionString = options.connectionString } = options;
    const config = configOf(options);
    this.name = `PostgreSQL at ${addressOf(config)}`;
    this.#schema = schemaOf(options);
    this.#keyPrefix = terms.keyPrefix;
    this.#looksOnly = terms.looksOnly ?? false;
    const driver = postgresDriver(config);
    this.#connection = new Connection(driver, {
      prepare: ({ client }) =>
        prepare(client, this.#schema, !this.#looksOnly, (time) => {
          // The connection may lead to another server, or to one whose clock was set.
          this.#turns.clock.forget();
          this.#turns.clock.learn(time);
        }),
      ready: () => {
        this.#turns.ready();
        terms.ready();
        if (this.#looksOnly) return;
        this.#sweeper.begin();
        void this.#messages.open();
      },
      lost: terms.lost,
      replaced: () => {
        this.#turns.ready();
        // A network that has forgotten one idle connection may have forgotten the others.
        this.#messages.test();
        void this.#side.discard();
      },
    });
    this.#messages = new Messages(configOf({ ...options, ...maybe(listenConnectionString) }), {
      send: (channel, text) => this.#connection.run('select pg_notify($1, $2)::text', [channel, text]),
      undelivered: () =>
        terms.warnOnce(
          `${this.name}: no messages arrive, as behind a pooler in transaction mode, so waiters for a lock have to ` +
            'poll; give `listenConnectionString`, a URL of PostgreSQL itself and not of the pooler',
        ),
      replaced: () => this.#connection.test(),
    });
    this.#turns = new Turns({
      keyPrefix: this.#keyPrefix,
      channel: this.#messages.channel,
      waiters: this.#waiters,
      run: async (keys, asked, onRepeat) => {
        const sql = `select "${this.#schema}".turn($1::text[], $2::jsonb)::text`;
        const text = await this.#connection.run(sql, [keys, JSON.stringify(asked)], onRepeat);
        return JSON.parse(text ?? '') as TurnAnswer;
      },
    });
    this.#side = new SideConnection(driver);
    this.#sweeper = new Sweeper({
      // The connection for locks asks, so that only the process that sweeps needs the third connection.
      takeTurn: (lasts) => this.#call<boolean>('take_sweep_turn($1, $2)', [this.#messages.channel, lasts]),
      sweep: (part, after, most) =>
        this.#call<readonly string[]>(`${part}($1::text[], $2)`, [after, most], this.#side),
    });
  }

  refuses(keys: readonly string[]): string | undefined {
    const isPossible = keys.every((key) => !key.includes('\0'));
    return isPossible ? undefined : 'a text of PostgreSQL has no NUL character; leave it out of the key';
  }

  async connect(): Promise<void> {
    await this.#connection.open();
    if (!this.#looksOnly) await this.#messages.open();
  }

  get available(): boolean {
    return this.#connection.available;
  }

  get idle(): boolean {
    return this.#connection.isIdle;
  }

  get subscribed(): boolean {
    return this.#messages.ready;
  }

  contended(keys: readonly string[]): boolean {
    return this.#waiters.any(keys);
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    this.#turns.acquire(requests, ordered, tell);
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    this.#turns.extend(leases, ttl, tell);
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    this.#turns.release(requests, tell);
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    return this.#messages.listen(waiter, onMessage);
  }

  async leave(waiter: WaiterId): Promise<void> {
    await this.#call('leave($1, $2)', [this.#stored(waiter.keys), waiterName(waiter)]);
  }

  async holdBack(waiter: WaiterId, waited: number): Promise<boolean> {
    const { keys, mode, owner } = waiter;
    const values = [this.#stored(keys), waiterName(waiter), mode, storedOwner(owner), waited];
    return (await this.#call<boolean>('hold_back($1, $2, $3, $4, $5)', values)) ?? false;
  }

  async letPass(waiter: WaiterId): Promise<void> {
    await this.#call('let_pass($1, $2)', [this.#stored(waiter.keys), waiterName(waiter)]);
  }

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    const found = await this.#call<readonly (Found | null)[]>('read($1)', [this.#stored(keys)]);
    return (found ?? []).map(stateOf);
  }

  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const found = await this.#call<readonly (readonly FoundWaiter[])[]>('waiting($1)', [this.#stored(keys)]);
    return (found ?? []).map((queue) => queue.map(keyWaiterOf));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    for (let after: string | null = ''; after !== null;) {
      const values: readonly unknown[] = [storedKey(this.#keyPrefix, prefix), after, PAGE];
      const page = await this.#call<ScanPage>('scan_page($1, $2, $3)', values, this.#side);
      const { keys, next }: ScanPage = page ?? { keys: [], next: null };
      if (keys.length > 0) yield keys.map((key) => key.slice(this.#keyPrefix.length));
      after = next;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    const values = [storedKey(this.#keyPrefix, key), [...ids]];
    // A second request would find nothing to release, and not say what the first one has released.
    const once = { run: (text: string, sent: readonly unknown[]) => this.#connection.run(text, sent, false) };
    return (await this.#call<readonly string[]>('force_release($1, $2)', values, once)) ?? [];
  }

  async check(): Promise<NodeCheck> {
    const text = await this.#connection.run(DESCRIBE);
    const description = JSON.parse(text ?? '') as ServerDescription;
    const unfit = unfitBecause(description);
    if (unfit !== undefined) return { state: 'unfit', reason: unfit, warnings: [] };
    try {
      await this.#call('try_to_write()', []);
    } catch (error) {
      const { code = '', message } = error as { code?: string; message: string };
      if (!REFUSES_TO_WRITE.test(code)) throw error;
      return { state: 'unfit', reason: `refuses to store locks: ${message}`, warnings: [] };
    }
    return { state: 'voting', warnings: weakBecause(description) };
  }

  async close(): Promise<void> {
    this.#sweeper.end();
    this.#turns.close();
    await Promise.all([this.#messages.close(), this.#side.close(), this.#connection.close()]);
  }

  #stored(keys: readonly string[]): string[] {
    return keys.map((key) => storedKey(this.#keyPrefix, key));
  }

  async #call<Answer>(
    call: string,
    values: readonly unknown[],
    connection: Runs = this.#connection,
  ): Promise<Answer | undefined> {
    const text = await connection.run(`select to_json("${this.#schema}".${call})::text`, values);
    // A function without a result returns an empty text.
    return text === undefined || text === '""' ? undefined : (JSON.parse(text) as Answer);
  }
}

/** A connection, as far as it runs statements. */
interface Runs {
  run(text: string, values: readonly unknown[]): Promise<string | undefined>;
}

/** The result of `scan_page`. */
interface ScanPage {
  readonly keys: readonly string[];
  readonly next: string | null;
}

function configOf(options: PostgresOptions): ClientConfig {
  const { connectionString, host, port, database, user, password, ssl } = options;
  return {
    ...{ connectionString, host, port, database, user, password, ssl },
    application_name: options.applicationName ?? 'nestjs-redlock',
  };
}

function maybe(connectionString: string | undefined): PostgresOptions {
  return connectionString === undefined ? {} : { connectionString };
}

/** The address of the server, without user and password. */
function addressOf({ connectionString, host = 'localhost', port = 5432, database }: ClientConfig): string {
  if (connectionString === undefined || !URL.canParse(connectionString))
    return `${host}:${port}${database === undefined ? '' : `/${database}`}`;
  const url = new URL(connectionString);
  return `${url.host}${url.pathname}`;
}
