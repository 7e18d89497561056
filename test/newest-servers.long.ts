import { expect, test } from '@jest/globals';
import { runOnServers } from './support/run-on-servers.js';

test("the contracts hold on the newest Valkey and Redis of Debian's sid, if they can be downloaded", async () => {
  await expect(runOnServers('--contract', 'valkey@sid', 'redis@sid')).resolves.toEqual([
    expect.stringMatching(/^== valkey@sid: (Valkey \S+: [1-9]\d* passed, 0 failed|skipped, because .+)$/),
    expect.stringMatching(/^== redis@sid: (Redis \S+: [1-9]\d* passed, 0 failed|skipped, because .+)$/),
  ]);
});
