import { expect, test } from '@jest/globals';
import { Names } from '../../../lib/stores/zookeeper/names.js';

test.each(['a', 'order:17/ä', '.', '', 'lock:lock:'])('finds the key %j in the name of its node', (key) => {
  const names = new Names('lock:');
  expect(names.keyOf(names.nodeOf(key))).toBe(key);
});

test.each([
  ['of another program', 'xlock%3Aa'],
  ['in another spelling', 'klock:a'],
  ['in another spelling', 'klock%3A%61'],
  ['of another module', 'kother%3Aa'],
  ['that has no text', 'klock%3A%ff'],
])('takes a node %s for no key', (_, name) => {
  expect(new Names('lock:').keyOf(name)).toBeUndefined();
});
