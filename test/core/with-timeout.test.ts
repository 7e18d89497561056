import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { withTimeout } from '../../lib/core/with-timeout.js';

const LIMIT = 50;

test('withTimeout accepts an answer that arrived in time, even if the thread was blocked past the limit', async () => {
  // After this wait, the test runs in the check phase of the event loop. So timers run before the answer arrives.
  await turn();
  const answer = new Promise((resolve) => setImmediate(resolve, 'there'));
  const outcome = withTimeout(answer, LIMIT);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LIMIT + 50);
  await expect(outcome).resolves.toBe('there');
});

test('withTimeout rejects when no answer comes within the limit', async () => {
  await expect(withTimeout(new Promise(() => undefined), LIMIT)).rejects.toThrow('no answer within 50 ms');
});
