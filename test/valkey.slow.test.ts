import { expect, test } from '@jest/globals';
import { runOnServers } from './support/run-on-servers.js';

// `npm run test:servers` runs these tests, and further ones, on more servers.

test('the tests of the Redis store pass on Valkey 8.0, if it can be downloaded', async () => {
  await expect(runOnServers('--quick', 'valkey@bookworm-backports')).resolves.toEqual([
    expect.stringMatching(/: (Valkey 8\.0\.\d+: [1-9]\d* passed, 0 failed|skipped, because .+)$/),
  ]);
});
