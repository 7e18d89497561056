import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { NODE_LIMIT_MS } from '../../lib/cli/session.js';
import { withTimeout } from '../../lib/cli/with-timeout.js';

test('an answer that is there counts, also when the thread was blocked until the limit had passed', async () => {
  // Then timers have their turn before the answer is read.
  await turn();
  const answer = new Promise((resolve) => setImmediate(resolve, 'there'));
  const outcome = withTimeout(answer);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, NODE_LIMIT_MS + 100);
  await expect(outcome).resolves.toBe('there');
});

test('a node that does not answer is given up', async () => {
  await expect(withTimeout(new Promise(() => undefined))).rejects.toThrow(
    `no answer within ${NODE_LIMIT_MS} ms`,
  );
});
