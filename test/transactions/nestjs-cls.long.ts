import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { bundled } from '../support/bundle.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { hasMysql } from '../support/mysql-server.js';
import { until } from '../support/until.js';
import { CURED, LOST, mariadbShop, postgresShop, type ShopDatabase } from './lost-update.js';

interface Message {
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: string;
  readonly read?: number;
  readonly warning?: string;
}

let database: ShopDatabase;
let file: string;
beforeAll(async () => {
  file = await bundled('test/fixtures/cls-shop.ts');
});

const SHOPS: readonly (readonly [string, () => Promise<ShopDatabase>])[] = [
  ['PostgreSQL', postgresShop],
  ...(hasMysql() ? [['MariaDB', mariadbShop] as const] : []),
];

/** Runs the shop of test/fixtures/cls-shop.ts in a process of its own, and calls its methods. */
class RemoteShop {
  readonly warnings: string[] = [];
  read: (left: number) => void = () => undefined;
  readonly #calls = new Map<number, (message: Message) => void>();
  readonly started: Promise<Message>;
  readonly #child: ChildProcess;
  readonly #forget: () => void;

  constructor(env: Readonly<Record<string, string>>) {
    this.#child = fork(file, {
      env: { ...process.env, NODE_OPTIONS: '', DATABASE_URL: database.url, ...env },
    });
    this.#forget = cleanUpAfterTests(async () => void this.#child.kill('SIGKILL'));
    this.#child.on('message', (message: Message) => {
      if (message.warning !== undefined) this.warnings.push(message.warning);
      if (message.read !== undefined) this.read(message.read);
      if (message.id !== undefined) this.#calls.get(message.id)?.(message);
    });
    this.started = new Promise((resolve) => this.#calls.set(0, resolve));
  }

  async call(method: string): Promise<unknown> {
    const id = this.#calls.size;
    const answered = new Promise<Message>((resolve) => this.#calls.set(id, resolve));
    this.#child.send({ id, method });
    const { result, error } = await answered;
    if (error !== undefined) throw new Error(error);
    return result;
  }

  async stop(): Promise<void> {
    this.#child.disconnect();
    await once(this.#child, 'exit');
    this.#forget();
  }
}

let shop: RemoteShop;
const isFree = async (): Promise<boolean> => (await shop.call('isFree')) === true;

async function start(env: Readonly<Record<string, string>> = {}): Promise<void> {
  shop = new RemoteShop(env);
  await shop.started;
}
afterEach(() => shop.stop());

const sellTwice = (way: string): Promise<unknown> =>
  database.sellTwice((read) => {
    shop.read = read;
    return shop.call(way);
  }, isFree);

const warnings = (): string[] => shop.warnings.filter((line) => line.includes('transaction'));

describe.each(SHOPS)('on %s', (_name, startDatabase) => {
  beforeAll(async () => {
    database = await startDatabase();
  });
  afterAll(() => database.stop());

  describe('with @nestjs-cls/transactional and Drizzle, and two concurrent sales', () => {
    beforeEach(() => start());

    test('with @Transactional() above @WithLock, one of two concurrent sales is lost, and one warning is logged', async () => {
      await expect(sellTwice('transactionAbove')).resolves.toEqual(LOST);
      expect(warnings()).toEqual([
        expect.stringMatching(/^Shop\.transactionAbove locks "stock:1" inside an open transaction\./),
      ]);
    });

    test.each([
      ['@WithLock above @Transactional()', 'lockAbove'],
      ['withLock around the transaction', 'around'],
    ])('no update of two concurrent sales is lost with %s', async (_, way) => {
      await expect(sellTwice(way)).resolves.toEqual(CURED);
      expect(warnings()).toEqual([]);
      await until(isFree);
    });

    test("a lock with `release: 'afterCommit'` is refused without commit hooks", async () => {
      await expect(shop.call('kept')).rejects.toThrow(/`release: 'afterCommit'` needs .*afterTransaction/);
    });
  });

  describe('with @nestjs-cls/transactional and an adapter that has commit hooks', () => {
    beforeEach(() => start({ TELLS_ENDS: '1' }));

    test("no update of two concurrent sales is lost with `release: 'afterCommit'`", async () => {
      await expect(sellTwice('kept')).resolves.toEqual(CURED);
      expect(warnings()).toEqual([]);
      await until(isFree);
    });

    test.each([
      ['kept until the rollback', 'rollBack', false],
      [
        'kept until the outermost transaction has committed, even if a savepoint acquired the lock',
        'savepoint',
        false,
      ],
      ['kept only until its task ends, if the task runs outside of the transaction', 'outside', true],
      ['kept only until its task ends, if the transaction ended before the task began', 'late', true],
    ])("a lock with `release: 'afterCommit'` is %s", async (_, way, wasFree) => {
      await database.stockUp();
      await expect(shop.call(way)).resolves.toBe(wasFree);
      await until(isFree);
    });
  });
});
