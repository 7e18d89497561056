import { beforeAll, describe, expect, test } from '@jest/globals';
import { CliProcess, type Ended, runCli } from '../support/cli.js';
import { hasEtcd, startEtcd } from '../support/etcd-server.js';
import { hasMysql, startMysqlServer } from '../support/mysql-server.js';
import { hasZooKeeper, startZooKeeper } from '../support/zookeeper-server.js';

// `run` and `hold` on the stores whose connections and losses differ from those of Redis. Each test runs the built command.

const STORES = [
  ['MariaDB', hasMysql(), async () => (await startMysqlServer()).uri],
  ['etcd', hasEtcd(), async () => (await startEtcd()).url],
  ['ZooKeeper', hasZooKeeper(), async () => `zookeeper://${(await startZooKeeper()).address}`],
] as const;

for (const [store, isInstalled, start] of STORES)
  (isInstalled ? describe : describe.skip)(`nestjs-redlock run on ${store}`, () => {
    let env: NodeJS.ProcessEnv;

    beforeAll(async () => {
      env = { REDLOCK_NODES: await start() };
    });

    const begin = (...args: string[]): CliProcess => new CliProcess(args, env);
    const cli = (...args: string[]): Promise<Ended> => runCli(args, env);

    test('the command has the token, gets the signal, and its exit code passes on', async () => {
      const script = `trap 'exit 9' TERM; echo "token $REDLOCK_TOKEN"; while :; do sleep 0.1; done`;
      const trapped = begin('run', 'k', '--ttl', '60s', '--', 'sh', '-c', script);
      await trapped.says('token');
      trapped.signal('SIGTERM');
      expect(await trapped.ended).toMatchObject({
        code: 9,
        stdout: expect.stringMatching(/^token \d{16}\n$/),
      });
    });

    test('others see the reason and the end of a `hold`, and `run --skip` ends with 75', async () => {
      const hold = begin('hold', 'k', '--for', '2h', '--ttl', '60s', '--reason', 'migration 42');
      await hold.says('Holding "k" until');
      const until = /until (\S+)/.exec(hold.stdout)?.[1];
      const skipped = await cli('run', 'k', '--skip', '--', 'echo', 'ran');
      expect(skipped).toMatchObject({ code: 75, stdout: '' });
      const shown = `until ${until}: migration 42`;
      expect(skipped.stderr).toContain(shown);
      expect((await cli('inspect', 'k')).stdout).toContain(shown);
      hold.signal('SIGINT');
      expect((await hold.ended).code).toBe(0);
    });

    test('after the loss of the lock all processes of the command end, also one that ignores SIGTERM', async () => {
      const script =
        "trap 'echo told' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo begun; wait; wait";
      const lost = begin('run', 'k', '--ttl', '9s', '--', 'sh', '-c', script);
      await lost.says('begun');
      expect(await cli('release', 'k', '--yes')).toMatchObject({ code: 0 });
      // The standard output ends with the last process of the group.
      expect(await lost.ended).toMatchObject({ code: 74, stdout: 'begun\ntold\n' });
      expect(lost.stderr).toContain('nestjs-redlock:');
    });
  });
