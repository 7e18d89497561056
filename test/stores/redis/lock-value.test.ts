import { expect, test } from '@jest/globals';
import { keyOfLock, lockKey, lockPattern } from '../../../lib/stores/redis/lock-key.js';
import { lockValue, ownerOf, parseLockValue } from '../../../lib/stores/redis/lock-value.js';
import { Lease } from '../../../lib/core/lease.js';

test('the value of a claim tells its owner, whatever the name is', () => {
  for (const owner of ['host:1', 'a:b:c', 'ünïcode', '']) {
    expect(ownerOf(lockValue(new Lease(['k'], owner, 100)))).toBe(owner);
  }
});

test('the value of a claim tells its id and since when it is held', () => {
  const before = Date.now();
  const claim = new Lease(['k'], 'host:1', 100);
  const { id, since } = claim;
  expect(since).toBeGreaterThanOrEqual(before);
  expect(since).toBeLessThanOrEqual(Date.now());
  expect(parseLockValue(lockValue(claim))).toEqual({ id, since, owner: 'host:1' });
});

test('a value that something else wrote is its own id and owner, of unknown age', () => {
  for (const value of ['1', '', 'x:y:z', `${'0'.repeat(32)}:owner of an older format`]) {
    expect(parseLockValue(value)).toEqual({ id: value, owner: value, since: undefined });
  }
});

test('a value that something else wrote is shown as it is', () => {
  expect(ownerOf('1')).toBe('1');
  expect(ownerOf('some longer value that is not one of ours at all')).toBe(
    'some longer value that is not one of ours at all',
  );
});

test.each([
  ['lock:', 'orders:1', 'lock:{orders:1}:l'],
  ['', 'a', '{a}:l'],
  // A key with a hash tag of its own keeps what shares the tag together: the tag is "{user:1".
  ['lock:', '{user:1}:cart', 'lock:{{user:1}:cart}:l'],
])('with the prefix %p the key %p is %p in Redis (S19)', (prefix, key, redisKey) => {
  expect(lockKey(prefix, key)).toBe(redisKey);
});

test.each([
  ['lock:', 'order:', String.raw`lock:{order:*}:l`],
  ['', '', '{*}:l'],
  ['a*b?', '[x]', String.raw`a\*b\?{\[x\]*}:l`],
  ['back\\slash', '', String.raw`back\\slash{*}:l`],
])('with the prefix %p, keys that begin with %p are found by %p', (prefix, start, pattern) => {
  expect(lockPattern(prefix, start)).toBe(pattern);
});

test('a key is read off its Redis key', () => {
  for (const key of ['a', '{user:1}:cart', '}:l', 'a{b}']) {
    expect(keyOfLock('lock:', lockKey('lock:', key))).toBe(key);
  }
});
