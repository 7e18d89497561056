import { expect, test } from '@jest/globals';
import {
  channelBase,
  keyOfLock,
  lockPattern,
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
])('joins the prefix %p and the key %p to %p in Redis (S19)', (prefix, key, redisKey) => {
  expect(recordKey(prefix, key)).toBe(redisKey);
});

test('gives all keys of a lock one hash tag, and so one slot of a Cluster (S19)', () => {
  // Redis Cluster takes the text between the first opening brace and the next closing one.
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

test('gives records, queues, ticks and the marker different Redis keys', () => {
  for (const prefix of PREFIXES) {
    const all = KEYS.flatMap((key) => [
      recordKey(prefix, key),
      queueKey(prefix, key),
      tickKey(prefix, [key], { schedule: 'nightly' }),
      tickKey(prefix, [key], { schedule: 'q' }),
    ]);
    all.push(markerKey(prefix));
    expect(new Set(all).size).toBe(all.length);
  }
});

test('gives a process one channel for all keys, and on a Cluster one for each key, in the slot of its queue', () => {
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
])('escapes the prefix %p and the start %p of a key in the pattern %p', (prefix, start, pattern) => {
  expect(lockPattern(prefix, start)).toBe(pattern);
});

test('reads a key from its Redis key', () => {
  for (const prefix of PREFIXES) {
    for (const key of KEYS) expect(keyOfLock(prefix, recordKey(prefix, key))).toBe(key);
  }
});
