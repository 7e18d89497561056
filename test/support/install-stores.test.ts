import { expect, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';

/** Runs the file without the right to install anything, and without a server on the PATH. */
function installed(env: NodeJS.ProcessEnv): { status: number | null; stdout: string } {
  const asUser = 'data:text/javascript,process.getuid = () => 1000';
  return spawnSync(process.execPath, ['--import', asUser, 'test/support/install-stores.mjs'], {
    env: { PATH: '', ...env },
    encoding: 'utf8',
  });
}

test('a missing server skips its tests on the machine of a developer, and is an error on GitHub', () => {
  const line =
    'There is no etcd; its tests are skipped. To run them: apt-get install etcd-server etcd-client';
  expect(installed({})).toMatchObject({ status: 0, stdout: expect.stringContaining(line) });
  expect(installed({ GITHUB_ACTIONS: 'true' })).toMatchObject({
    status: 1,
    stdout: expect.stringContaining(line),
  });
});
