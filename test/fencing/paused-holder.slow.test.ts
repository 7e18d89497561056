import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Pool } from 'pg';
import { FencedRegister } from '../../lib/fencing/index.js';
import { LockService } from '../../lib/index.js';
import { mysql } from '../../lib/mysql/index.js';
import { postgres } from '../../lib/postgres/index.js';
import { bundled } from '../support/bundle.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { hasMysql, startMysqlServer } from '../support/mysql-server.js';
import { startWatchdog } from '../support/watchdog.js';
import { startServices } from '../sample-app/services.js';

// No lock can prevent this case: a holder finds its lock valid, is paused until another holder has acquired the lock,
// and then writes. docs/safety.md names this case among those that the library does not promise to prevent.

/** The store of the locks. */
type Kind = 'Redis' | 'PostgreSQL' | 'MariaDB';

const register = new FencedRegister();
let services: { databaseUrl: string; redisUrl: string };
let pool: Pool;
let mariadbUrl = '';
let lockServices: Partial<Record<Kind, LockService>>;
let fixture: string;

cleanUpAfterTests(() => {
  // Nothing awaits this promise, because the transaction of a failed test may never return its connection.
  void pool?.end();
  return Promise.resolve();
});

beforeAll(async () => {
  [services, fixture] = await Promise.all([startServices(), bundled('test/fixtures/paused-holder.ts')]);
  pool = new Pool({ connectionString: services.databaseUrl });
  // The server may end before the pool closes its connections. Without a listener, that error would end the process.
  pool.on('error', () => undefined);
  await pool.query(register.createTableSql);
  await pool.query('create table accounts (id text primary key, value text not null)');
  if (hasMysql()) mariadbUrl = (await startMysqlServer()).uri;
  const nodes = {
    Redis: services.redisUrl,
    PostgreSQL: postgres({ connectionString: services.databaseUrl }),
    ...(mariadbUrl === '' ? {} : { MariaDB: mysql({ uri: mariadbUrl }) }),
  };
  const started = Object.entries(nodes).map(async ([kind, each]) => {
    const app = await startApp({}, { nodes: each });
    return [kind, app.get(LockService)] as const;
  });
  lockServices = Object.fromEntries(await Promise.all(started));
});

beforeEach(async () => {
  await pool.query('truncate accounts, fencing_tokens');
  await pool.query(`insert into accounts (id, value) values ('a', 'initial')`);
});

/** A holder in a process of its own. */
class Holder {
  private readonly lines: AsyncIterator<string>;

  private constructor(
    private readonly child: ChildProcess,
    reader: Interface,
    private readonly folder: string,
  ) {
    this.lines = reader[Symbol.asyncIterator]();
  }

  static async start(kind: Kind, pause: string, fenced: boolean): Promise<Holder> {
    const folder = await mkdtemp(join(tmpdir(), 'paused-holder-'));
    const child = spawn(process.execPath, [fixture], {
      detached: true,
      stdio: ['ignore', 'pipe', 'inherit'],
      env: {
        ...process.env,
        LOCKS: kind,
        REDIS_URL: services.redisUrl,
        DATABASE_URL: services.databaseUrl,
        MARIADB_URL: mariadbUrl,
        PAUSE: pause,
        RESUME_FILE: join(folder, 'resume'),
        FENCED: fenced ? '1' : '',
      },
    });
    const watchdog = startWatchdog(child.pid ?? 0, folder);
    child.once('exit', () => watchdog.kill('SIGKILL'));
    return new Holder(child, createInterface({ input: child.stdout }), folder);
  }

  async told(): Promise<Record<string, unknown>> {
    const { value, done } = await this.lines.next();
    if (done) throw new Error('the holder ended without a word');
    return JSON.parse(value as string) as Record<string, unknown>;
  }

  async resume(): Promise<void> {
    await writeFile(join(this.folder, 'resume'), '');
    this.child.kill('SIGCONT');
  }

  async end(): Promise<void> {
    this.child.kill('SIGKILL');
    if (existsSync(this.folder)) await rm(this.folder, { recursive: true, force: true });
  }
}

let holder: Holder | undefined;

afterEach(() => holder?.end());

const cases: (readonly [Kind, string])[] = (['Redis', 'PostgreSQL'] as const).flatMap((kind) =>
  ['SIGSTOP', 'a blocked thread'].map((pause) => [kind, pause] as const),
);
if (hasMysql()) cases.push(['MariaDB', 'SIGSTOP']);

describe.each(cases)('a lock in %s whose holder is paused by %s for longer than the ttl', (kind, pause) => {
  async function writeLate(fenced: boolean): Promise<{ told: object; token: unknown; successor: number }> {
    holder = await Holder.start(kind, pause, fenced);
    const { token } = await holder.told();
    // The successor acquires the lock after the ttl of the paused holder.
    const successor = await lockServices[kind]!.withLock(
      'account:a',
      { retry: { timeout: 30_000 } },
      async (lock) => {
        await register.transaction(pool, lock, (client) =>
          client.query(`update accounts set value = 'successor' where id = 'a'`),
        );
        return lock.fencingToken;
      },
    );
    await holder.resume();
    return { told: await holder.told(), token, successor };
  }

  async function read(): Promise<string> {
    const { rows } = await pool.query<{ value: string }>('select value from accounts');
    return rows[0]?.value ?? '';
  }

  test('a paused holder cannot write after its successor if the register checks its token', async () => {
    const { told, token, successor } = await writeLate(true);

    expect(successor).toBeGreaterThan(token as number);
    expect(told).toEqual({ outcome: 'TOKEN_STALE', held: false });
    await expect(read()).resolves.toBe('successor');
  });

  // Negative control: the lock alone cannot prevent the late write.
  test('a paused holder overwrites the write of its successor if no register checks the token (control)', async () => {
    const { told } = await writeLate(false);

    expect(told).toEqual({ outcome: 'written', held: false });
    await expect(read()).resolves.toBe('late');
  });
});
