import type { ClientConfig } from 'pg';
import type { KeyState, KeyWaiter } from '../../core/ports.js';
import type { StoreTerms } from '../../core/store-factory.js';
import type { WaiterId } from '../../core/waiter-id.js';
import {
  DatabaseStore,
  type ExchangeAnswer,
  type Runs,
  type ScanPage,
  type ServerCheck,
} from '../database/database-store.js';
import {
  type Found,
  type FoundWaiter,
  keyWaiterOf,
  stateOf,
  type BatchAnswer,
  type BatchRequest,
  waiterName,
} from '../database/request.js';
import { storedOwner } from '../database/text.js';
import { Messages } from './messages.js';
import { type OwnClient, postgresDriver } from './own-client.js';
import { type PostgresOptions, schemaOf } from './postgres.options.js';
import { prepare, type ServerDescription, unfitBecause, weakBecause } from './preparation.js';
import { DESCRIBE } from './sql/fitness.js';

/** The code of the error of a statement that waited too long for a row. */
const LOCK_NOT_AVAILABLE = '55P03';

/**
 * A store in one PostgreSQL. A function of its schema runs all requests of a statement.
 *
 * The store opens two connections: one for requests, one for messages to waiters. A third one is open while the process
 * lists locks or removes old rows.
 */
export class PostgresStore extends DatabaseStore<OwnClient> {
  readonly name: string;
  protected readonly messages: Messages;
  /** No disk space, no memory, too many objects, missing rights, read-only. */
  protected readonly refusesToWrite = /^(53|42501|25006)/;
  readonly #schema: string;

  constructor(options: PostgresOptions, terms: StoreTerms) {
    const { listenConnectionString = options.connectionString } = options;
    const config = configOf(options);
    super(postgresDriver(config), terms);
    this.name = `PostgreSQL at ${addressOf(config)}`;
    this.#schema = schemaOf(options);
    this.messages = new Messages(configOf({ ...options, ...maybe(listenConnectionString) }), {
      send: (channel, text) => this.connection.run('select pg_notify($1, $2)::text', [channel, text]),
      undelivered: () =>
        terms.warnOnce(
          `${this.name}: no messages arrive, as behind a pooler in transaction mode, so waiters for a lock have to ` +
            'poll; give `listenConnectionString`, a URL of PostgreSQL itself and not of the pooler',
        ),
      replaced: () => this.connection.test(),
    });
  }

  refuses(keys: readonly string[]): string | undefined {
    const isPossible = keys.every((key) => !key.includes('\0'));
    return isPossible ? undefined : 'a text of PostgreSQL has no NUL character; leave it out of the key';
  }

  async leave(waiter: WaiterId): Promise<void> {
    await this.#call('leave($1, $2)', [this.stored(waiter.keys), waiterName(waiter)]);
  }

  async holdBack(waiter: WaiterId, waited: number): Promise<boolean> {
    const { keys, mode, owner } = waiter;
    const values = [this.stored(keys), waiterName(waiter), mode, storedOwner(owner), waited];
    return (await this.#call<boolean>('hold_back($1, $2, $3, $4, $5)', values)) ?? false;
  }

  async letPass(waiter: WaiterId): Promise<void> {
    await this.#call('let_pass($1, $2)', [this.stored(waiter.keys), waiterName(waiter)]);
  }

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    const found = await this.#call<readonly (Found | null)[]>('read($1)', [this.stored(keys)]);
    return (found ?? []).map(stateOf);
  }

  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const found = await this.#call<readonly (readonly FoundWaiter[])[]>('waiting($1)', [this.stored(keys)]);
    return (found ?? []).map((queue) => queue.map(keyWaiterOf));
  }

  protected async prepare(
    { client }: OwnClient,
    mayMake: boolean,
    learn: (time: number) => void,
  ): Promise<readonly string[]> {
    return weakBecause(await prepare(client, this.#schema, mayMake, learn));
  }

  protected doubtMessages(): void {
    this.messages.test();
  }

  protected async run(
    keys: readonly string[],
    asked: BatchRequest,
    onRepeat: () => void,
  ): Promise<BatchAnswer> {
    const sql = `select "${this.#schema}".turn($1::text[], $2::jsonb)::text`;
    const text = await this.connection.run(sql, [keys, JSON.stringify(asked)], onRepeat);
    return JSON.parse(text ?? '') as BatchAnswer;
  }

  protected async blocked(keys: readonly string[], error: Error): Promise<ReadonlySet<string>> {
    if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE) return new Set();
    return new Set(await this.#call<readonly string[]>('blocked($1)', [keys]));
  }

  protected claimSweep(lasts: number): Promise<boolean | undefined> {
    return this.#call<boolean>('take_sweep_turn($1, $2)', [this.messages.channel, lasts]);
  }

  protected sweep(
    part: string,
    after: readonly string[],
    most: number,
  ): Promise<readonly string[] | undefined> {
    return this.#call<readonly string[]>(`${part}($1::text[], $2)`, [after, most], this.side);
  }

  protected async scanPage(prefix: string, after: string, most: number): Promise<ScanPage> {
    const page = await this.#call<ScanPage>('scan_page($1, $2, $3)', [prefix, after, most], this.side);
    return page ?? { keys: [], next: null };
  }

  protected async releaseHolders(
    connection: Runs,
    key: string,
    ids: readonly string[],
  ): Promise<readonly string[]> {
    const values = [key, [...ids]];
    return (await this.#call<readonly string[]>('force_release($1, $2)', values, connection)) ?? [];
  }

  protected async runExchange(...values: readonly unknown[]): Promise<ExchangeAnswer> {
    const answer = await this.#call<ExchangeAnswer>('exchange($1, $2, $3, $4, $5)', values);
    return answer!;
  }

  protected async describe(): Promise<ServerCheck> {
    const description = JSON.parse((await this.connection.run(DESCRIBE)) ?? '') as ServerDescription;
    return { unfit: unfitBecause(description), warnings: weakBecause(description) };
  }

  protected tryToWrite(): Promise<unknown> {
    return this.#call('try_to_write()', []);
  }

  async #call<Answer>(
    call: string,
    values: readonly unknown[],
    connection: Runs = this.connection,
  ): Promise<Answer | undefined> {
    const text = await connection.run(`select to_json("${this.#schema}".${call})::text`, values);
    // A function without a result returns an empty text.
    return text === undefined || text === '""' ? undefined : (JSON.parse(text) as Answer);
  }
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
