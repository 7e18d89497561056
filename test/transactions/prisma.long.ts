import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { AsyncLocalStorage } from 'node:async_hooks';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LockService } from '../../lib/index.js';
import { runCommand } from '../consumers/run-command.js';
import { LogLines } from '../support/log-lines.js';
import { hasMysql } from '../support/mysql-server.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { CURED, KEY, LOST, mariadbShop, type ShopDatabase } from './lost-update.js';

// Installing takes long on a slow connection: Prisma has 300 MB, so the repository does not contain it.
jest.setTimeout(600_000);

const SCHEMA = `
generator client {
  provider = "prisma-client-js"
}
datasource db {
  provider = "mysql"
}
model stock {
  id        Int @id
  left_over Int
}
model account {
  id    Int @id
  value String
  token BigInt @default(0)
}
`;

/** The client that Prisma generates for the schema, as far as the tests use it. */
interface Prisma {
  readonly stock: {
    findUniqueOrThrow(query: object): Promise<{ left_over: number }>;
    update(query: object): Promise<unknown>;
  };
  readonly account: {
    updateMany(query: object): Promise<{ count: number }>;
    findUniqueOrThrow(query: object): Promise<{ value: string }>;
  };
  $transaction<T>(task: (inner: Prisma) => Promise<T>): Promise<T>;
  $disconnect(): Promise<void>;
}

type Read = (left: number) => void;

(hasMysql() ? describe : describe.skip)('transactions of Prisma on MariaDB', () => {
  let folder: string;
  let database: ShopDatabase;
  let prisma: Prisma;
  let app: INestApplication;
  let locks: LockService;
  let lines: LogLines;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'prisma-'));
    const packages = ['prisma@7', '@prisma/client@7', '@prisma/adapter-mariadb@7'];
    const options = ['--ignore-scripts', '--no-package-lock', '--prefer-offline', '--no-audit', '--no-fund'];
    await writeFile(join(folder, 'package.json'), '{"private":true}');
    await writeFile(join(folder, 'schema.prisma'), SCHEMA);
    await runCommand('npm', ['install', ...options, ...packages], { cwd: folder });
    // The generator needs no engine, but downloads one unless it finds a program.
    const env = { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1' };
    await runCommand('npx', ['prisma', 'generate', '--schema', 'schema.prisma'], { cwd: folder, env });
    database = await mariadbShop();
    const load = createRequire(join(folder, 'package.json'));
    const { PrismaClient } = load('@prisma/client') as { PrismaClient: new (options: object) => Prisma };
    const { PrismaMariaDb } = load('@prisma/adapter-mariadb') as {
      PrismaMariaDb: new (url: string) => object;
    };
    prisma = new PrismaClient({ adapter: new PrismaMariaDb(database.url.replace('mysql:', 'mariadb:')) });
  });
  afterAll(async () => {
    await prisma.$disconnect();
    await database.stop();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(async () => {
    lines = new LogLines();
    app = await startApp(
      {},
      { nodes: 'memory', inTransaction: () => transactions.getStore() },
      { logger: lines },
    );
    locks = app.get(LockService);
  });
  afterEach(() => app.close());

  const transactions = new AsyncLocalStorage<object>();

  const transaction = <T>(task: (inner: Prisma) => Promise<T>): Promise<T> =>
    prisma.$transaction((inner) => transactions.run({}, () => task(inner)));

  async function sell(inner: Prisma, read: Read): Promise<void> {
    const { left_over: left } = await inner.stock.findUniqueOrThrow({ where: { id: 1 } });
    read(left);
    await inner.stock.update({ where: { id: 1 }, data: { left_over: left - 1 } });
  }

  const warnings = (): string[] => lines.of('warn').filter((line) => line.includes('transaction'));
  const isFree = async (): Promise<boolean> => !(await locks.inspect(KEY)).held;

  test('with a lock in the transaction, one of two concurrent sales is lost, and one warning is logged', async () => {
    const inside = (read: Read): Promise<void> =>
      transaction((inner) => locks.withLock(KEY, { label: 'sale' }, () => sell(inner, read)));
    await expect(database.sellTwice(inside, isFree)).resolves.toEqual(LOST);
    expect(warnings()).toEqual([
      expect.stringMatching(/\(label "sale"\) locks "stock:1" inside an open transaction\./),
    ]);
  });

  test('with the lock around the transaction, no update of two concurrent sales is lost', async () => {
    const around = (read: Read): Promise<void> =>
      locks.withLock(KEY, () => transaction((inner) => sell(inner, read)));
    await expect(database.sellTwice(around, isFree)).resolves.toEqual(CURED);
    expect(warnings()).toEqual([]);
    await until(isFree);
  });

  test('a row that keeps the token of its last write refuses the write of an earlier holder', async () => {
    await database.run(
      "create table account (id int primary key, value varchar(20) not null, token bigint not null default 0); insert into account (id, value) values (1, 'initial')",
    );
    const tokens: number[] = [];
    for (const _ of [1, 2])
      await locks.withLock('account', ({ fencingToken }) => void tokens.push(fencingToken));
    const write = (value: string, token: number): Promise<{ count: number }> =>
      transaction((inner) =>
        inner.account.updateMany({ where: { id: 1, token: { lte: token } }, data: { value, token } }),
      );
    await expect(write('later', tokens[1]!)).resolves.toEqual({ count: 1 });
    await expect(write('late', tokens[0]!)).resolves.toEqual({ count: 0 });
    await expect(prisma.account.findUniqueOrThrow({ where: { id: 1 } })).resolves.toMatchObject({
      value: 'later',
    });
  });
});
