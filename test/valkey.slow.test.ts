import { expect, test } from '@jest/globals';
import { runCommand } from './consumers/run-command.js';

// `npm run test:servers` runs these tests, and further ones, on more servers.
test('the tests of the Redis store pass on Valkey 8.0, if it can be downloaded', async () => {
  const args = ['test/support/test-servers.mjs', '--quick', 'valkey@bookworm-backports'];
  const output = await runCommand(process.execPath, args, { cwd: '.' });
  expect(output).toMatch(
    /^== valkey@bookworm-backports: (Valkey 8\.0\.\d+: [1-9]\d* passed, 0 failed|skipped, because .+)$/m,
  );
});
