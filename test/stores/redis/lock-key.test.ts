import { expect, test } from '@jest/globals';
import {
  channelBase,
  keyOfLock,
  lockPattern,
  identityKey,
  markerKey,
  queueKey,
  recordKey,
  tickKey,
  wakeChannel,
} from '../../../lib/stores/redis/lock-key.js';

const PREFIXES = ['lock:', '', 'app:lock:', 'a*b?'];
const KEYS = ['a', 'orders:1', '{user:1}:cart', 'a}b', 'a{b}'];

test.each([
  ['lock:', 'orders:1', 'lock:{orders:1}'],
  ['', 'a', '{a}'],
  // Keys with a common hash tag stay in one slot: here the tag is "{user:1".
  ['lock:', '{user:1}:cart', 'lock:{{user:1}:cart}'],
])('the prefix %p and the key %p give the Redis key %p (S19)', (prefix, key, redisKey) => {
  expect(recordKey(prefix, key)).toBe(redisKey);
});

test('all Redis keys of a lock have one hash tag, and so one slot of a Cluster (S19)', () => {
  // For Redis Cluster, the hash tag is the text between the first opening brace and the next closing brace.
  const tagOf = (redisKey: string): string | undefined => /^[^{]*\{([^}]+)\}/.exec(redisKey)?.[1];
  for (const prefix of PREFIXES) {
    for (const key of KEYS) {
      const tag = tagOf(recordKey(prefix, key));
      expect(tag).toBeDefined();
      for (const other of [
        queueKey(prefix, key),
        tickKey(prefix, [key, 'another'], { schedule: 'nightly' }),
        wakeChannel(prefix, true, key, '0123456789abcdef'),
      ]) {
        expect(tagOf(other)).toBe(tag);
      }
    }
  }
});

test("records, queues, ticks and the node's marker have different Redis keys", () => {
  for (const prefix of PREFIXES) {
    const all = KEYS.flatMap((key) => [
      recordKey(prefix, key),
      queueKey(prefix, key),
      tickKey(prefix, [key], { schedule: 'nightly' }),
      tickKey(prefix, [key], { schedule: 'q' }),
    ]);
    all.push(markerKey(prefix), identityKey(prefix));
    expect(new Set(all).size).toBe(all.length);
  }
});

test('a process receives messages on one channel for all keys, but on a Cluster on one channel per key', () => {
  const process = '0123456789abcdef';
  expect(wakeChannel('lock:', false, 'a', process)).toBe(`${channelBase('lock:')}${process}`);
  expect(wakeChannel('lock:', false, 'b', process)).toBe(wakeChannel('lock:', false, 'a', process));
  expect(wakeChannel('lock:', true, 'a', process)).toBe(`${queueKey('lock:', 'a')}:${process}`);
});

test.each([
  ['lock:', 'order:', String.raw`lock:{order:*}`],
  ['', '', '{*}'],
  ['a*b?', '[x]', String.raw`a\*b\?{\[x\]*}`],
  ['back\\slash', '', String.raw`back\\slash{*}`],
])('the prefix %p and keys that begin with %p give the escaped pattern %p', (prefix, start, pattern) => {
  expect(lockPattern(prefix, start)).toBe(pattern);
});

test('the key of a lock can be read from its Redis key', () => {
  for (const prefix of PREFIXES) {
    for (const key of KEYS) expect(keyOfLock(prefix, recordKey(prefix, key))).toBe(key);
  }
});
