import { expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { EventEmitter } from 'node:events';
import { stat } from 'node:fs/promises';
import { Subscriber } from '../../lib/ioredis/subscriber.js';

test('a connection is kept when it was this process that did not read the answers', async () => {
  let asked = 0;
  let ended = 0;
  const connection = Object.assign(new EventEmitter(), {
    connect: () => Promise.resolve(connection.emit('ready')),
    // Answered soon, from outside of this thread.
    subscribe: () => stat('.').finally(() => asked++),
    stream: { destroy: () => ended++ },
    disconnect: () => undefined,
  });
  const subscriber = new Subscriber(
    () => connection as unknown as Redis,
    false,
    () => undefined,
  );
  subscriber.listen('channel', { message: () => undefined, ready: () => undefined });
  for (let block = 0; block < 6; block++) {
    const end = performance.now() + 520;
    while (performance.now() < end);
    await new Promise(setImmediate);
  }
  subscriber.close();
  expect(ended).toBe(0);
  // Once to subscribe, and then to hear whether it still answers.
  expect(asked).toBeGreaterThan(1);
});
