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
import { type BatchAnswer, type BatchRequest, waiterName } from '../database/request.js';
import { SideConnection } from '../database/side-connection.js';
import { storedOwner } from '../database/text.js';
import { Messages } from './messages.js';
import { addressOf, type MysqlAddress, type MysqlOptions, namesOf } from './mysql.options.js';
import { mysqlDriver, type OwnClient } from './own-client.js';
import { prepare, settingsOf, unfitBecause, weakBecause } from './preparation.js';
import {
  answerOf,
  callOf,
  cut,
  lengthOfStatement,
  micros,
  MOST_BYTES_OF_KEY,
  queuesOf,
  sorted,
  statesOf,
  textOf,
} from './request.js';
import type { SchemaNames } from './schema.js';
import { DESCRIBE, TRY_TO_WRITE } from './sql/fitness.js';
import { READ, ROWS_OF, SCAN_PAGE, UNLOCKED, WAITING } from './sql/look.js';

/** Milliseconds that a statement which waits for messages may take. */
const LISTEN_WITHIN_MS = 3_000;

/** Errors after which the server has rolled everything back, so that the statement may be sent once more. */
const ROLLED_BACK = new Set([
  'ER_LOCK_DEADLOCK',
  'ER_ERROR_DURING_COMMIT',
  'ER_CHECKREAD',
  'ER_NEED_REPREPARE',
]);

/** Attempts for a statement that was rolled back. */
const ATTEMPTS = 4;

/**
 * A store in one MySQL or MariaDB. A stored procedure runs all requests of a statement.
 *
 * The store opens one connection for requests, a second one while waiters wait for messages, and a third one while the
 * process lists locks or removes old rows.
 */
export class MysqlStore extends DatabaseStore<OwnClient> {
  readonly name: string;
  protected readonly messages: Messages;
  /** No disk space, missing rights, read-only. */
  protected readonly refusesToWrite =
    /^ER_(RECORD_FILE_FULL|DISK_FULL|ERROR_ON_WRITE|OPTION_PREVENTS_STATEMENT|READ_ONLY_MODE|CANT_EXECUTE_IN_READ_ONLY_TRANSACTION|TABLEACCESS_DENIED_ERROR|LOCK_WAIT_TIMEOUT|OUT_OF_RESOURCES|LOCK_TABLE_FULL|TABLESPACE_)/;
  readonly #listening: SideConnection<OwnClient>;
  readonly #names: SchemaNames;
  /** The `max_allowed_packet` of the server. */
  #longestStatement = Infinity;

  constructor(options: MysqlOptions, terms: StoreTerms) {
    const address = addressOf(options);
    const driver = mysqlDriver(address);
    super(driver, terms);
    this.name = `MySQL at ${shownAddress(address)}`;
    this.#names = namesOf(options);
    this.#listening = new SideConnection(driver, LISTEN_WITHIN_MS);
    this.messages = new Messages(
      async (...values) => (await this.#call('listen', values, this.#listening)) ?? '[]',
    );
  }

  refuses(keys: readonly string[]): string | undefined {
    if (keys.length * MOST_BYTES_OF_KEY < this.#longestStatement) return undefined;
    const length = lengthOfStatement(this.stored(keys));
    return length < this.#longestStatement
      ? undefined
      : `a statement with its keys has ${length} bytes, and the server allows ${this.#longestStatement} ` +
          '(max_allowed_packet); lock fewer keys together, or raise it';
  }

  async leave(waiter: WaiterId): Promise<void> {
    await this.#call('leave', [this.#sorted(waiter), waiterName(waiter)]);
  }

  async holdBack(waiter: WaiterId, waited: number): Promise<boolean> {
    const { keys, mode, owner } = waiter;
    const order = textOf(this.stored(keys));
    const values = [
      this.#sorted(waiter),
      order,
      waiterName(waiter),
      mode,
      cut(storedOwner(owner)),
      micros(waited),
    ];
    return (await this.#call('hold_back', values)) === '1';
  }

  async letPass(waiter: WaiterId): Promise<void> {
    await this.#call('let_pass', [this.#sorted(waiter), waiterName(waiter)]);
  }

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    const text = await this.connection.run(this.#names.in(READ), [textOf(this.stored(keys))]);
    return statesOf(text ?? '[]', keys.length);
  }

  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const text = await this.connection.run(this.#names.in(WAITING), [textOf(this.stored(keys))]);
    return queuesOf(text ?? '[]', keys.length);
  }

  override async close(): Promise<void> {
    await Promise.all([super.close(), this.#listening.close()]);
  }

  protected async prepare(
    client: OwnClient,
    mayMake: boolean,
    learn: (time: number) => void,
  ): Promise<readonly string[]> {
    const settings = await prepare(client, this.#names, mayMake, learn);
    this.#longestStatement = Number(settings['max_allowed_packet'] ?? Infinity);
    return weakBecause(settings);
  }

  protected doubtMessages(): void {
    void this.#listening.discard();
  }

  protected async run(
    keys: readonly string[],
    asked: BatchRequest,
    onRepeat: () => void,
  ): Promise<BatchAnswer> {
    const { name, values } = callOf(keys, asked);
    const connection = {
      run: (text: string, sent: readonly unknown[]) => this.connection.run(text, sent, onRepeat),
    };
    return answerOf((await this.#call(name, values, connection)) ?? '', asked);
  }

  protected async blocked(keys: readonly string[], error: Error): Promise<ReadonlySet<string>> {
    if ((error as { code?: string }).code !== 'ER_LOCK_WAIT_TIMEOUT') return new Set();
    const found = async (lock: string): Promise<string[]> =>
      keysOf(await this.connection.run(this.#names.in(`${ROWS_OF(keys)}${lock}`)));
    const free = new Set(await found(UNLOCKED));
    return new Set((await found('')).filter((key) => !free.has(key)));
  }

  protected async claimSweep(lasts: number): Promise<boolean> {
    return (await this.#call('take_sweep_turn', [this.messages.channel, micros(lasts)])) === '1';
  }

  protected async sweep(
    part: string,
    after: readonly string[],
    most: number,
  ): Promise<readonly string[] | undefined> {
    const position = after.map((text) => Buffer.from(text, 'hex'));
    const last = await this.#call(part, [...position, most], this.side);
    return last?.split(',');
  }

  protected async scanPage(prefix: string, after: string, most: number): Promise<ScanPage> {
    const text = await this.side.run(this.#names.in(SCAN_PAGE(most)), [prefix, prefix, after]);
    return JSON.parse(text ?? '{"keys":[],"next":null}') as ScanPage;
  }

  protected async releaseHolders(
    connection: Runs,
    key: string,
    ids: readonly string[],
  ): Promise<readonly string[]> {
    const gone = (await this.#call('force_release', [Buffer.from(key), ids.join(',')], connection)) ?? '';
    return gone === '' ? [] : gone.split(',');
  }

  protected async runExchange(
    keys: readonly string[],
    known: readonly string[],
    owner: string,
    since: number,
    deadline: number,
  ): Promise<ExchangeAnswer> {
    const [id] = known;
    const values = [textOf(sorted(keys)), id, known.join(','), cut(owner), since, micros(deadline)];
    return JSON.parse((await this.#call('exchange', values)) ?? '') as ExchangeAnswer;
  }

  protected async describe(): Promise<ServerCheck> {
    const settings = settingsOf(await this.connection.run(DESCRIBE));
    return { unfit: unfitBecause(settings), warnings: weakBecause(settings) };
  }

  protected tryToWrite(): Promise<unknown> {
    return this.connection.run(this.#names.in(TRY_TO_WRITE));
  }

  #sorted({ keys }: WaiterId): string {
    return textOf(sorted(this.stored(keys)));
  }

  /** Calls a procedure that selects one text. Calls it again if the server has rolled it back, such as after a deadlock. */
  async #call(
    procedure: string,
    values: readonly unknown[],
    connection: Runs = this.connection,
  ): Promise<string | undefined> {
    const text = this.#names.in(`call {${procedure}}(${values.map(() => '?').join(', ')})`);
    for (let attempt = 1; ; attempt++) {
      try {
        return await connection.run(text, values);
      } catch (error) {
        // A deadline in the request is a time, so a late attempt stores nothing.
        if (attempt === ATTEMPTS || !ROLLED_BACK.has((error as { code?: string }).code ?? '')) throw error;
      }
    }
  }
}

/** Keys in hexadecimal digits. */
function keysOf(text: string | undefined): string[] {
  return (text ?? '').split(',').map((key) => Buffer.from(key, 'hex').toString());
}

/** The address of the server, without user and password. */
function shownAddress({ host, port, socketPath, database }: MysqlAddress): string {
  return `${socketPath ?? `${host}:${port}`}/${database}`;
}
