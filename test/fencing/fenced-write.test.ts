import { expect, test } from '@jest/globals';
import { RedlockError } from '../../lib/index.js';
import { type FencedAnswer, fencedWrite, type TokenHolder } from '../../lib/fencing/index.js';

/** A store that compares and writes in one step, as every store must. */
class Store {
  value = '';
  highest = 0;

  writer(value: string) {
    return async (token: number) => {
      if (token < this.highest) return { accepted: false, highest: this.highest };
      this.highest = token;
      this.value = value;
      return { accepted: true };
    };
  }
}

const holder = (fencingToken: number): TokenHolder => ({ keys: ['order:7'], fencingToken });

test('fencedWrite writes with a higher token and with an equal token', async () => {
  const store = new Store();

  await fencedWrite(holder(33), store.writer('first'));
  await fencedWrite(holder(34), store.writer('second'));
  await fencedWrite(holder(34), store.writer('third'));

  expect(store).toMatchObject({ value: 'third', highest: 34 });
});

test('fencedWrite rejects a lower token with an error that names the token and the remedy', async () => {
  const store = new Store();
  await fencedWrite(holder(34), store.writer('new'));

  const refused = fencedWrite(holder(33), store.writer('old'));

  await expect(refused).rejects.toMatchObject({
    name: 'StaleTokenError',
    code: 'TOKEN_STALE',
    keys: ['order:7'],
    token: 33,
    highest: 34,
    message: expect.stringMatching(
      /^Nothing was written for "order:7": the fencing token 33 of this lock is lower than the token 34 that was seen before, so .*acquire the lock again/,
    ),
  });
  await expect(refused).rejects.toBeInstanceOf(RedlockError);
  expect(store.value).toBe('new');
});

test.each([[true], [false], [undefined], [null], [1], [{}], [{ accepted: 1 }], [{ accepted: 'no' }]])(
  'fencedWrite rejects with a TypeError when the write resolves to %j',
  async (answer) => {
    const write = async () => answer as FencedAnswer;

    const failed = fencedWrite(holder(33), write);

    await expect(failed).rejects.toBeInstanceOf(TypeError);
    await expect(failed).rejects.toThrow(
      /^Expected the answer of `write` to be `{ accepted: boolean }`, which says if it wrote/,
    );
  },
);

test('fencedWrite rejects a lower token even if the store does not report the highest token', async () => {
  const refused = fencedWrite(holder(33), async () => ({ accepted: false }));

  await expect(refused).rejects.toMatchObject({
    highest: undefined,
    message: expect.stringContaining('33 of this lock is lower than a token that was seen before, so'),
  });
});

test('fencedWrite rejects with the error of the write, unchanged', async () => {
  const failure = new Error('the store is away');

  await expect(fencedWrite(holder(33), () => Promise.reject(failure))).rejects.toBe(failure);
});

test.each([
  [undefined, TypeError, /^Expected `lock` to be .*`fencingToken`, got undefined$/],
  [{ keys: [], fencingToken: 1 }, TypeError, /^Expected `key` to be .*, got \[\]$/],
  [{ keys: [''], fencingToken: 1 }, TypeError, /^Expected `key` to be /],
  [
    { keys: ['a'], fencingToken: '1' },
    TypeError,
    /^Expected `fencingToken` to be a whole number .*, got '1'$/,
  ],
  [{ keys: ['a'], fencingToken: -1 }, RangeError, /^Expected `fencingToken` to be .*, got -1$/],
  [{ keys: ['a'], fencingToken: 1.5 }, RangeError, /, got 1\.5$/],
  [{ keys: ['a'], fencingToken: 2 ** 53 }, RangeError, /, got 9007199254740992$/],
])('fencedWrite refuses %j as a lock, and writes nothing', async (lock, type, message) => {
  const store = new Store();

  const refused = fencedWrite(lock as TokenHolder, store.writer('x'));

  await expect(refused).rejects.toThrow(type);
  await expect(refused).rejects.toThrow(message);
  expect(store.value).toBe('');
});
