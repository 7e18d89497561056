import { expect, test } from '@jest/globals';
import { setImmediate } from 'node:timers/promises';
import { KeyRule } from '../../lib/redlock/store-limits.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { LockInspector } from '../../lib/redlock/inspect/lock-inspector.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { redlockOver } from '../support/core.js';
import { ScriptedNode } from '../support/scripted-node.js';

const NO_SLASH = {
  refuses: (keys: readonly string[], mode: string) =>
    keys.some((key) => key.includes('/'))
      ? `a key in the mode '${mode}' must not contain a slash`
      : undefined,
};

test('the rule of a store refuses its keys, and names the store, the keys and the reason', () => {
  const store = Object.assign(new MemoryStore(), { name: 'a store', ...NO_SLASH });
  const rule = new KeyRule([new MemoryStore(), store]);
  expect(() => rule.check(['a', 'b'], 'exclusive')).not.toThrow();
  expect(() => rule.check(['a', 'b/c'], 'shared')).toThrow(
    new RangeError(
      'a store cannot store a lock of "a", "b/c": a key in the mode \'shared\' must not contain a slash',
    ),
  );
});

test('a key has at most 2,048 bytes together with a long prefix', () => {
  const rule = new KeyRule([new MemoryStore()], 'p'.repeat(100));
  expect(() => rule.check(['x'.repeat(1_948)], 'exclusive')).not.toThrow();
  expect(() => rule.check(['a', 'x'.repeat(1_949)], 'exclusive')).toThrow(
    /^Expected `key` to be at most 1948 bytes long in UTF-8, because of the `keyPrefix`, got 1949 bytes: /,
  );
  const short = new KeyRule([new MemoryStore()], 'p'.repeat(48));
  expect(() => short.check(['x'.repeat(2_000)], 'exclusive')).not.toThrow();
});

test('`acquire`, `inspect` and `forceRelease` refuse such a key at once, and send no request', async () => {
  const node = Object.assign(new ScriptedNode('a store'), NO_SLASH);
  const redlock = redlockOver([node]);
  const options = {
    ttl: 10_000,
    renew: true,
    signals: [],
    retry: { ...NO_RETRY, timeout: 5_000, attempts: 9 },
  };
  expect(() => redlock.acquire(['a/b'], options)).toThrow(RangeError);
  const inspection = new LockInspector([node], { nodeTimeout: undefined }, []);
  await expect(inspection.inspect('a/b')).rejects.toThrow(RangeError);
  await expect(inspection.forceRelease('a/b')).rejects.toThrow(RangeError);
  // Requests are sent at the end of the turn.
  await setImmediate();
  expect(node.requests).toEqual([]);
});
