import { beforeAll, describe, expect, test } from '@jest/globals';
import { LockService } from '../../lib/index.js';
import { mysql } from '../../lib/mysql/index.js';
import { type Ended, runCli } from '../support/cli.js';
import { hasMysql, type MysqlServer, startMysqlServer } from '../support/mysql-server.js';
import { startApp } from '../support/nest-app.js';

// Each test runs the built command on locks in MariaDB.

let server: MysqlServer;

const cli = (...args: string[]): Promise<Ended> => runCli(args, { REDLOCK_NODES: server.uri });

(hasMysql() ? describe : describe.skip)('the command on MariaDB', () => {
  let locks: LockService;

  beforeAll(async () => {
    server = await startMysqlServer();
  });

  test('`doctor` reports missing tables, and creates no tables', async () => {
    const { code, stdout } = await cli('doctor');
    expect(stdout).toMatch(/unreachable: .*has no tables and procedures for locks with the prefix redlock_/);
    expect(code).toBe(3);
    const tables = "select count(*) from information_schema.tables where table_schema = 'app'";
    await expect(server.value(tables)).resolves.toBe(0);
  });

  test('`schema` prints the SQL with which an application with few rights has locks', async () => {
    await server.query("create user few@'%' identified by 'secret'");
    const made = await cli('schema', '--table-prefix', 'own_', '--role', 'few');
    expect(made.code).toBe(0);
    // The script can run again.
    for (const _ of [1, 2]) server.script(made.stdout);
    const nodes = mysql({ uri: server.uriOf('few'), tablePrefix: 'own_' });
    const few = (await startApp({}, { nodes, owner: 'api:1' })).get(LockService);
    await few.withLock('order:1', { ttl: 60_000, permits: 2 }, async () => {
      expect((await cli('list', '--table-prefix', 'own_')).stdout).toMatch(/order:1.*api:1/);
    });
    await expect(few.withLock('order:1', { ttl: 60_000 }, () => 'done')).resolves.toBe('done');
    const doctor = await cli('doctor', '--table-prefix', 'own_', '--node', server.uriOf('few'));
    expect(doctor).toMatchObject({ code: 0, stdout: expect.stringMatching(/^MySQL at .*voting/) });
    const without = mysql({ uri: server.uriOf('few'), tablePrefix: 'other_' });
    await expect(startApp({}, { nodes: without })).rejects.toThrow(
      /has no tables and procedures for locks with the prefix other_.*no right to create them.*schema --node mysql/s,
    );
  });

  test('`list`, `inspect`, `release` and `doctor` work on locks in MariaDB', async () => {
    locks = (await startApp({}, { nodes: mysql({ uri: server.uri }), owner: 'api:1' })).get(LockService);
    await locks.acquire('order:1', { ttl: 3_600_000, renew: false });
    await locks.acquire('order:2', { ttl: 3_600_000, renew: false, permits: 2 });
    expect((await cli('list')).stdout).toMatch(/order:1.*api:1[^]*order:2.*api:1/);
    expect((await cli('inspect', 'order:1')).stdout).toContain('api:1');
    expect(await cli('release', 'order:1', '--yes')).toMatchObject({ code: 0 });
    await expect(locks.inspect('order:1')).resolves.toMatchObject({ held: false });
    const maria = server.uri.replace('mysql://', 'mariadb://');
    expect(JSON.parse((await cli('doctor', '--json', '--node', maria)).stdout)).toMatchObject({
      available: true,
    });
  });

  test.each([
    [['schema', '--json'], 'schema does not take --json'],
    [['schema', 'now'], 'Too many arguments after schema'],
    [['schema', '--role', "a'b"], 'Expected --role to be a user such as app'],
    [['schema', '-n', 'redis://a'], 'other stores have no tables'],
    [['list', '--table-prefix', '1'], 'Expected --table-prefix to be lower-case letters'],
    [['list', '-n', 'mysql://a/b', '-n', 'mysql://c/d'], 'a MySQL or MariaDB must be the only node'],
    [
      ['list', '-n', 'mysql://user:secret@db'],
      'Expected --node to be a URL such as mysql://user:password@host',
    ],
  ])('the CLI refuses the arguments %j', async (args, message) => {
    const { code, stderr } = await cli(...args);
    expect(stderr).toContain(message);
    expect(stderr).not.toContain('secret');
    expect(code).toBe(2);
  });
});
