import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { LockService } from '../../lib/index.js';
import { zookeeper } from '../../lib/zookeeper/index.js';
import { type Ended, runCli } from '../support/cli.js';
import { startApp } from '../support/nest-app.js';
import { hasZooKeeper, startZooKeeper, type ZooKeeperServer } from '../support/zookeeper-server.js';

// Each test runs the built command on locks in ZooKeeper.

(hasZooKeeper() ? describe : describe.skip)('the command on ZooKeeper', () => {
  let server: ZooKeeperServer;

  beforeAll(async () => {
    server = await startZooKeeper();
  }, 180_000);
  afterAll(() => server.stop());

  const cli = (...args: string[]): Promise<Ended> =>
    runCli(args, { REDLOCK_NODES: `zookeeper://${server.address}` });

  test('`list`, `inspect` and `doctor` show a lock in ZooKeeper, and `release` ends the lock', async () => {
    const app = await startApp(
      {},
      { nodes: zookeeper({ connectionString: server.address }), owner: 'api:1' },
    );
    const lock = await app.get(LockService).acquire('order:17');
    const checked = await cli('doctor');
    expect(checked.stdout).toContain(`ZooKeeper at ${server.address}  voting`);
    expect(checked.code).toBe(0);
    expect((await cli('list')).stdout).toContain('order:17');
    expect((await cli('inspect', 'order:17')).stdout).toContain('api:1');
    expect((await cli('release', 'order:17', '--yes')).code).toBe(0);
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect((await cli('inspect', 'order:17')).code).toBe(1);
    await app.close();
  });

  test('`doctor` logs in by SASL with `?scheme=sasl`', async () => {
    // This server has no DIGEST-MD5, and says so in the exchange.
    const { code, stdout } = await cli(
      'doctor',
      '-n',
      `zookeeper://user:secret@${server.address}?scheme=sasl`,
    );
    expect(stdout).toContain('did not take the login: the server offers no login by DIGEST-MD5');
    expect(stdout).not.toContain('secret');
    expect(code).not.toBe(0);
  });

  test('the CLI refuses an invalid ZooKeeper URL without showing its password', async () => {
    // Without a user, the password would have no effect.
    for (const url of [
      ...['zookeeper://user:secret@host:port', 'zookeeper://:secret@host:2181'],
      ...['zookeeper://user:secret@host:2181?scheme=kerberos', 'zookeeper://host:2181?scheme=sasl'],
    ]) {
      const { code, stderr } = await cli('list', '-n', url);
      expect(stderr).toContain('Expected --node to be one URL with all servers of a ZooKeeper');
      expect(stderr).not.toContain('secret');
      expect(code).toBe(2);
    }
  });
});
