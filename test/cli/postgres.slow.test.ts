import { beforeAll, describe, expect, test } from '@jest/globals';
import { LockService } from '../../lib/index.js';
import { postgres } from '../../lib/postgres/index.js';
import { type Ended, runCli, runCliHere } from '../support/cli.js';
import { startApp } from '../support/nest-app.js';
import { type PostgresServer, startPostgresServer } from '../support/postgres-server.js';

// The tests run the command on locks in PostgreSQL, `run` and one of each other kind in a process of its own.

let server: PostgresServer;
let locks: LockService;

beforeAll(async () => {
  server = await startPostgresServer();
});

const cli = (...args: string[]): Promise<Ended> => runCliHere(args, { REDLOCK_NODES: server.url });
const cliProcess = (...args: string[]): Promise<Ended> => runCli(args, { REDLOCK_NODES: server.url });

test('`doctor` reports missing tables, and creates no tables', async () => {
  const { code, stdout } = await cliProcess('doctor');
  expect(stdout).toMatch(/unreachable: .*has no tables for locks in the schema redlock/);
  expect(code).toBe(3);
  const { rows } = await (await server.client()).query(`select from pg_namespace where nspname = 'redlock'`);
  expect(rows).toEqual([]);
});

test('`postgres-migration` prints the SQL that creates the tables and grants a role its rights', async () => {
  const { code, stdout } = await cliProcess('postgres-migration', '--schema', 'locks', '--role', 'app');
  expect(code).toBe(0);
  const client = await server.client();
  await client.query('create role app login');
  await client.query(stdout);
  const app = await server.client(server.urlOf('app'));
  expect((await app.query('select locks.version()')).rows).toHaveLength(1);
});

test.each([
  [['postgres-migration', '--json'], 'postgres-migration does not take --json'],
  [['postgres-migration', 'now'], 'Too many arguments after postgres-migration'],
  [['postgres-migration', '--role', 'a b'], 'Expected --role to be letters, digits and underscores'],
  [['list', '--schema', '1'], 'Expected --schema to be letters, digits and underscores'],
  [['list', '-n', 'postgres://a', '-n', 'postgres://b'], 'a PostgreSQL must be the only node'],
  [
    ['list', '-n', 'postgres://user:secret@:x'],
    'Expected --node to be a URL such as postgres://user:password@host',
  ],
])('the CLI refuses the arguments %j', async (args, message) => {
  const { code, stderr } = await cli(...args);
  expect(stderr).toContain(message);
  expect(stderr).not.toContain('secret');
  expect(code).toBe(2);
});

describe('the command on PostgreSQL with tables for locks', () => {
  beforeAll(async () => {
    const nodes = postgres({ connectionString: server.url });
    locks = (await startApp({}, { nodes, owner: 'api:1' })).get(LockService);
  });

  test('`list` and `inspect` show locks in PostgreSQL, and `release` ends a lock', async () => {
    await locks.acquire('order:1', { ttl: 3_600_000, renew: false });
    await locks.acquire('order:2', { ttl: 3_600_000, renew: false, permits: 2 });
    expect((await cliProcess('list')).stdout).toMatch(/order:1.*api:1[^]*order:2.*api:1/);
    expect((await cli('inspect', 'order:1')).stdout).toContain('api:1');
    expect(await cli('release', 'order:1', '--yes')).toMatchObject({ code: 0 });
    await expect(locks.inspect('order:1')).resolves.toMatchObject({ held: false });
    expect(await cli('inspect', 'order:1')).toMatchObject({ code: 1 });
  });

  test('`run` runs a command under a lock in PostgreSQL, and releases the lock', async () => {
    const script = ['sh', '-c', 'echo "token $REDLOCK_TOKEN"'];
    const { code, stdout, stderr } = await cliProcess('run', 'order:3', '--ttl', '60s', '--', ...script);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^token \d+\n$/);
    await expect(locks.inspect('order:3')).resolves.toMatchObject({ held: false });
  });

  test('`doctor` reports that the PostgreSQL server votes', async () => {
    expect(await cli('doctor')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^PostgreSQL at .*voting/),
    });
    expect(JSON.parse((await cli('doctor', '--json')).stdout)).toMatchObject({ available: true });
  });
});
