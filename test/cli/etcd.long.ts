import { beforeAll, describe, expect, test } from '@jest/globals';
import { etcd } from '../../lib/etcd/index.js';
import { LockService } from '../../lib/index.js';
import { type Ended, runCli } from '../support/cli.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../support/etcd-server.js';
import { startApp } from '../support/nest-app.js';

// Each test runs the built command on locks in etcd.

(hasEtcd() ? describe : describe.skip)('the command on etcd', () => {
  let server: EtcdServer;

  beforeAll(async () => {
    server = await startEtcd();
  });

  const cli = (...args: string[]): Promise<Ended> => runCli(args, { REDLOCK_NODES: server.url });

  test('`doctor` reports that an etcd server votes, and writes no key', async () => {
    const { code, stdout } = await cli('doctor');
    expect(stdout).toContain(`etcd at 127.0.0.1:${server.port}  voting`);
    expect(code).toBe(0);
    expect(await server.keys()).toEqual([]);
  });

  test('`list` and `inspect` show a lock in etcd, and `release` ends the lock', async () => {
    const app = await startApp({}, { nodes: etcd({ endpoints: server.url }), owner: 'api:1' });
    const lock = await app.get(LockService).acquire('order:17');
    expect((await cli('list')).stdout).toContain('order:17');
    expect((await cli('inspect', 'order:17')).stdout).toContain('api:1');
    expect((await cli('release', 'order:17', '--yes')).code).toBe(0);
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect((await cli('inspect', 'order:17')).code).toBe(1);
  });

  test('the CLI refuses an invalid etcd URL without showing its password', async () => {
    const { code, stderr } = await cli(
      'list',
      '-n',
      'http://user:secret@host/path',
      '-n',
      'redis://localhost',
    );
    expect(stderr).toContain('Expected --node to be URLs of the members of one etcd');
    expect(stderr).not.toContain('secret');
    expect(code).toBe(2);
  });
});
