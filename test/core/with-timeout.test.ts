import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { withTimeout } from '../../lib/core/with-timeout.js';

const LIMIT = 50;

test('an answer that is there counts, also when the thread was blocked until the limit had passed', async () => {
  // Then timers have their turn before the answer is read.
  await turn();
  const answer = new Promise((resolve) => setImmediate(resolve, 'there'));
  const outcome = withTimeout(answer, LIMIT);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LIMIT + 50);
  await expect(outcome).resolves.toBe('there');
});

test('what does not come is given up', async () => {
  await expect(withTimeout(new Promise(() => undefined), LIMIT)).rejects.toThrow('no answer within 50 ms');
});
