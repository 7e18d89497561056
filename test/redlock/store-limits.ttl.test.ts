import { expect, test } from '@jest/globals';
import { setImmediate } from 'node:timers/promises';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { LockStore } from '../../lib/core/ports.js';
import { checkTtl } from '../../lib/redlock/store-limits.js';
import { redlockOver } from '../support/core.js';
import { ScriptedNode } from '../support/scripted-node.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';

const BY_THE_SECOND = { least: 2_000, step: 1_000, reason: 'it counts seconds' };

function storeOfSeconds(): MemoryStore {
  return Object.assign(new MemoryStore(), { name: 'a store', ttls: BY_THE_SECOND });
}

test.each([1_000, 1_999, 2_500, 10])(
  'checkTtl refuses a ttl of %p ms that the store cannot keep, and names the allowed values',
  (ttl) => {
    expect(() => checkTtl([storeOfSeconds()], ttl)).toThrow(
      new RangeError(
        `Expected \`ttl\` to be a multiple of 1000 ms, at least 2000, for a store, got ${ttl}: it counts seconds`,
      ),
    );
  },
);

test('checkTtl accepts a ttl that the store can keep, and any ttl when the store has no rule', () => {
  const stores: readonly LockStore[] = [new MemoryStore(), storeOfSeconds()];
  expect(() => checkTtl(stores, 2_000)).not.toThrow();
  expect(() => checkTtl([new MemoryStore()], 11)).not.toThrow();
});

test('`acquire` and `extend` refuse a ttl that the store cannot keep, and send no request', async () => {
  const node = Object.assign(new ScriptedNode('a store'), { ttls: BY_THE_SECOND });
  const redlock = redlockOver([node]);
  const options = { renew: true, signals: [], retry: NO_RETRY };
  expect(() => redlock.acquire(['a'], { ...options, ttl: 2_500 })).toThrow(RangeError);
  // Requests are sent at the end of the turn.
  await setImmediate();
  expect(node.requests).toEqual([]);
  const lock = await redlock.acquire(['a'], { ...options, ttl: 2_000 });
  await expect(lock.extend(2_500)).rejects.toThrow(RangeError);
  await setImmediate();
  expect(node.requests).toEqual(['acquire']);
  await lock.extend(3_000);
  expect(node.requests).toEqual(['acquire', 'extend']);
  await lock.release();
});
