import { expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { EventEmitter } from 'node:events';
import { Worker } from 'node:worker_threads';
import { Subscriber } from '../../../../lib/stores/redis/pubsub/subscriber.js';

// Indexes into the memory that the two threads share.
/** 1 while the first thread is blocked, else 0. */
const BLOCKED = 0;
/** Number of answers that the second thread has sent. */
const ANSWERS = 1;

// The second thread answers while the first thread is blocked and cannot read the answer.
const ANSWERING = `
  const { parentPort, workerData } = require('node:worker_threads');
  parentPort.on('message', () => {
    Atomics.wait(workerData, ${BLOCKED}, 0);
    parentPort.postMessage('answer');
    Atomics.add(workerData, ${ANSWERS}, 1);
  });
`;

test('a Subscriber keeps its connection when a blocked thread could not read the answers', async () => {
  const shared = new Int32Array(new SharedArrayBuffer(8));
  const other = new Worker(ANSWERING, { eval: true, workerData: shared });
  const waiting: (() => void)[] = [];
  other.on('message', () => waiting.shift()?.());
  let asked = 0;
  let ended = 0;
  const connection = Object.assign(new EventEmitter(), {
    connect: () => Promise.resolve(connection.emit('ready')),
    subscribe: () => {
      asked++;
      other.postMessage('question');
      return new Promise<void>((resolve) => waiting.push(resolve));
    },
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
    Atomics.store(shared, BLOCKED, 1);
    Atomics.notify(shared, BLOCKED);
    // Stay blocked at least until the answer has been sent, which takes longer on a busy machine.
    while (performance.now() < end || Atomics.load(shared, ANSWERS) < asked) {
      Atomics.wait(shared, ANSWERS, Atomics.load(shared, ANSWERS), 5);
    }
    Atomics.store(shared, BLOCKED, 0);
    await new Promise(setImmediate);
  }
  subscriber.close();
  await other.terminate();
  expect(ended).toBe(0);
  // The first request subscribes, and the later requests check that the connection still answers.
  expect(asked).toBeGreaterThan(1);
});
