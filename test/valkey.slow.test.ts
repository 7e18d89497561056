import { expect, test } from '@jest/globals';
import { runCommand } from './consumers/run-command.js';

// `npm run test:servers` runs these tests, and further ones, on more servers.

/** Runs tests on servers, and returns the line about each server. */
async function runOn(...args: string[]): Promise<string[]> {
  const output = await runCommand(process.execPath, ['test/support/test-servers.mjs', ...args], { cwd: '.' });
  return output.split('\n').filter((line) => /^== \S+: /.test(line));
}

test('the tests of the Redis store pass on Valkey 8.0, if it can be downloaded', async () => {
  await expect(runOn('--quick', 'valkey@bookworm-backports')).resolves.toEqual([
    expect.stringMatching(/: (Valkey 8\.0\.\d+: [1-9]\d* passed, 0 failed|skipped, because .+)$/),
  ]);
});

test("the contracts hold on the newest Valkey and Redis of Debian's sid, if they can be downloaded", async () => {
  await expect(runOn('--contract', 'valkey@sid', 'redis@sid')).resolves.toEqual([
    expect.stringMatching(/^== valkey@sid: (Valkey \S+: [1-9]\d* passed, 0 failed|skipped, because .+)$/),
    expect.stringMatching(/^== redis@sid: (Redis \S+: [1-9]\d* passed, 0 failed|skipped, because .+)$/),
  ]);
});
