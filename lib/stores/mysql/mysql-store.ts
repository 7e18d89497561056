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
import { type TurnAnswer, type TurnRequest, waiterName } from '../database/request.js';
import { SideConnection } from '../database/side-connection.js';
import { Sweeper } from '../database/sweeper.js';
import { storedKey, storedOwner } from '../database/text.js';
import { Turns } from '../database/turns.js';
import { Messages } from './messages.js';
import { addressOf, type MysqlAddress, type MysqlOptions, namesOf } from './mysql.options.js';
import { mysqlDriver, type OwnClient } from './own-client.js';
import { prepare, settingsOf, timeOf, unfitBecause, weakBecause } from './preparation.js';
import { answerOf, callOf, cut, micros, queuesOf, sorted, statesOf, textOf } from './request.js';
import type { SchemaNames } from './schema.js';
import { DESCRIBE, TRY_TO_WRITE } from './sql/fitness.js';
import { READ, SCAN_PAGE, WAITING } from './sql/look.js';

/** The number of keys that one statement of a scan examines, held or not. */
const PAGE = 1_000;

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

/** Errors of a server that refuses to write: no disk space, missing rights, read-only. */
const REFUSES_TO_WRITE =
  /^ER_(RECORD_FILE_FULL|DISK_FULL|ERROR_ON_WRITE|OPTION_PREVENTS_STATEMENT|READ_ONLY_MODE|CANT_EXECUTE_IN_READ_ONLY_TRANSACTION|TABLEACCESS_DENIED_ERROR|LOCK_WAIT_TIMEOUT|OUT_OF_RESOURCES|LOCK_TABLE_FULL|TABLESPACE_)/;

/**
 * A store in one MySQL or MariaDB. Locks in its rows end by the server's clock. An acquisition or a release takes one
 * round trip, for any number of keys and leases.
 *
 * The store opens one connection for requests, a second one while waiters wait for messages, and a third one while the
 * process lists locks or removes old rows.
 */
export class MysqlStore
  implements LockStore, WaitQueue, StarvationGuard, LockDirectory, QueueDirectory, StoreHealth
{
  readonly name: string;
  readonly modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
  readonly #connection: Connection<OwnClient>;
  readonly #listening: SideConnection<OwnClient>;
  readonly #messages: Messages;
  readonly #turns: Turns;
  readonly #waiters = new RecentKeys();
  readonly #side: SideConnection<OwnClient>;
  readonly #sweeper: Sweeper;
  readonly #names: SchemaNames;
  readonly #keyPrefix: string;
  readonly #looksOnly: boolean;

  constructor(options: MysqlOptions, terms: StoreTerms) {
    const address = addressOf(options);
    const driver = mysqlDriver(address);
    this.name = `MySQL at ${shownAddress(address)}`;
    this.#names = namesOf(options);
    this.#keyPrefix = terms.keyPrefix;
    this.#looksOnly = terms.looksOnly ?? false;
    this.#connection = new Connection(driver, {
      prepare: (client) =>
        prepare(client, this.#names, !this.#looksOnly, (settings) => {
          // The connection may lead to another server, or to one whose clock was set.
          this.#turns.clock.forget();
          this.#turns.clock.learn(timeOf(settings));
        }),
      ready: () => {
        this.#turns.ready();
        terms.ready();
        if (!this.#looksOnly) this.#sweeper.begin();
      },
      lost: terms.lost,
      replaced: () => {
        this.#turns.ready();
        // A network that has forgotten one idle connection may have forgotten the others.
        void this.#listening.discard();
        void this.#side.discard();
      },
    });
    this.#listening = new SideConnection(driver, LISTEN_WITHIN_MS);
    this.#messages = new Messages(
      async (...values) => (await this.#call('listen', values, this.#listening)) ?? '[]',
    );
    this.#turns = new Turns({
      keyPrefix: this.#keyPrefix,
      channel: this.#messages.channel,
      waiters: this.#waiters,
      run: (keys, asked, onRepeat) => this.#run(keys, asked, onRepeat),
    });
    this.#side = new SideConnection(driver);
    this.#sweeper = new Sweeper({
      // The connection for locks asks, so that only the process that sweeps needs the third connection.
      takeTurn: async (lasts) =>
        (await this.#call('take_sweep_turn', [this.#messages.channel, micros(lasts)])) === '1',
      sweep: async (part, after, most) => {
        const last = await this.#call(
          part,
          [...after.map((text) => Buffer.from(text, 'hex')), most],
          this.#side,
        );
        return last?.split(',');
      },
    });
  }

  async connect(): Promise<void> {
    await this.#connection.open();
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
    await this.#call('leave', [this.#sorted(waiter), waiterName(waiter)]);
  }

  async holdBack(waiter: WaiterId, waited: number): Promise<boolean> {
    const { keys, mode, owner } = waiter;
    const order = textOf(this.#stored(keys));
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
    const text = await this.#connection.run(this.#names.in(READ), [textOf(this.#stored(keys))]);
    return statesOf(text ?? '[]', keys.length);
  }

  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const text = await this.#connection.run(this.#names.in(WAITING), [textOf(this.#stored(keys))]);
    return queuesOf(text ?? '[]', keys.length);
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    const stored = storedKey(this.#keyPrefix, prefix);
    for (let after: string | null = ''; after !== null;) {
      const text = await this.#side.run(this.#names.in(SCAN_PAGE(PAGE)), [stored, stored, after]);
      const { keys, next } = JSON.parse(text ?? '{"keys":[],"next":null}') as ScanPage;
      if (keys.length > 0) yield keys.map((key) => key.slice(this.#keyPrefix.length));
      after = next;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    const values = [Buffer.from(storedKey(this.#keyPrefix, key)), ids.join(',')];
    // A second request would find nothing to release, and not say what the first one has released.
    const once = { run: (text: string, sent: readonly unknown[]) => this.#connection.run(text, sent, false) };
    const gone = (await this.#call('force_release', values, once)) ?? '';
    return gone === '' ? [] : gone.split(',');
  }

  async check(): Promise<NodeCheck> {
    const settings = settingsOf(await this.#connection.run(DESCRIBE));
    const unfit = unfitBecause(settings);
    if (unfit !== undefined) return { state: 'unfit', reason: unfit, warnings: [] };
    try {
      await this.#connection.run(this.#names.in(TRY_TO_WRITE));
    } catch (error) {
      const { code = '', message } = error as { code?: string; message: string };
      if (!REFUSES_TO_WRITE.test(code)) throw error;
      return { state: 'unfit', reason: `refuses to store locks: ${message}`, warnings: [] };
    }
    return { state: 'voting', warnings: weakBecause(settings) };
  }

  async close(): Promise<void> {
    this.#sweeper.end();
    this.#turns.close();
    this.#messages.close();
    await Promise.all([this.#listening.close(), this.#side.close(), this.#connection.close()]);
  }

  async #run(keys: readonly string[], asked: TurnRequest, onRepeat: () => void): Promise<TurnAnswer> {
    const { name, values } = callOf(keys, asked);
    const connection = {
      run: (text: string, sent: readonly unknown[]) => this.#connection.run(text, sent, onRepeat),
    };
    for (let attempt = 1; ; attempt++) {
      try {
        return answerOf((await this.#call(name, values, connection)) ?? '', asked);
      } catch (error) {
        // The deadlines in the request are times, so a late attempt stores nothing.
        if (attempt === ATTEMPTS || !ROLLED_BACK.has((error as { code?: string }).code ?? '')) throw error;
      }
    }
  }

  #stored(keys: readonly string[]): string[] {
    return keys.map((key) => storedKey(this.#keyPrefix, key));
  }

  #sorted({ keys }: WaiterId): string {
    return textOf(sorted(this.#stored(keys)));
  }

  /** Calls a procedure that selects one text. */
  #call(
    procedure: string,
    values: readonly unknown[],
    connection: Runs = this.#connection,
  ): Promise<string | undefined> {
    return connection.run(this.#names.in(`call {${procedure}}(${values.map(() => '?').join(', ')})`), values);
  }
}

/** A connection, as far as it runs statements. */
interface Runs {
  run(text: string, values: readonly unknown[]): Promise<string | undefined>;
}

/** The result of {@link SCAN_PAGE}. */
interface ScanPage {
  readonly keys: readonly string[];
  readonly next: string | null;
}

/** The address of the server, without user and password. */
function shownAddress({ host, port, socketPath, database }: MysqlAddress): string {
  return `${socketPath ?? `${host}:${port}`}/${database}`;
}
