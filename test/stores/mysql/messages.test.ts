import { expect, test } from '@jest/globals';
import { waiterName } from '../../../lib/stores/database/request.js';
import { Messages } from '../../../lib/stores/mysql/messages.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { until } from '../../support/until.js';

const WAITER = { keys: ['a'], mode: 'exclusive', process: 'p', number: 1, owner: 'me' } as const;

/** Listens for `WAITER`, and answers one message of the server. */
async function hear(message: { after: number; turn: 0 | 1 | boolean }): Promise<unknown[]> {
  const heard: unknown[] = [];
  const answers = [JSON.stringify([{ waiter: waiterName(WAITER), told: 7, released: null, ...message }])];
  const messages = new Messages(() => {
    const answer = answers.shift();
    return answer === undefined ? new Promise(() => undefined) : Promise.resolve(answer);
  });
  cleanUpAfterTests(async () => messages.close());
  messages.listen(WAITER, (after, turn) => heard.push(after, turn));
  await until(() => heard.length > 0);
  return heard;
}

// The statement takes its time when it begins. A release can write the message before the statement reads the rows.
test.each([1, true] as const)(
  'a waiter whose turn has begun may try at once, even if the statement took its time before the turn began (%s)',
  async (turn) => {
    await expect(hear({ after: 0.003, turn })).resolves.toEqual([0, true]);
  },
);

test('a waiter that may try later waits at least until then', async () => {
  await expect(hear({ after: 149.2, turn: 0 })).resolves.toEqual([150, false]);
});

test('a waiter that comes after the end asks the server nothing', async () => {
  let calls = 0;
  // Without an answer at last, the defect would be an endless loop.
  const messages = new Messages(() =>
    ++calls < 100 ? Promise.reject(new Error('closed')) : new Promise(() => undefined),
  );
  messages.close();
  messages.listen(WAITER, () => undefined);
  await new Promise(setImmediate);
  expect(calls).toBe(0);
});

test('a message for a waiter that has gone is received once', async () => {
  const gone = { waiter: 'p:2', told: 7, after: 0, turn: 0, released: null };
  const known: string[] = [];
  const messages = new Messages((_, told) => {
    known.push(told);
    return known.length === 1 ? Promise.resolve(JSON.stringify([gone])) : new Promise(() => undefined);
  });
  cleanUpAfterTests(async () => messages.close());
  messages.listen(WAITER, () => undefined);
  await until(() => known.length === 2);
  expect(known).toEqual(['', 'p:2@7']);
});
