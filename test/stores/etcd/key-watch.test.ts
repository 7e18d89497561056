import { expect, test } from '@jest/globals';
import { detachedIdOf } from '../../../lib/core/pass.js';
import type { Gateway } from '../../../lib/stores/etcd/gateway.js';
import { holderValue, waiterValue } from '../../../lib/stores/etcd/key-view.js';
import { KeyWatch, type Watcher } from '../../../lib/stores/etcd/key-watch.js';
import { holderName } from '../../../lib/stores/etcd/names.js';
import { base64 } from '../../../lib/stores/etcd/protocol.js';
import type { TxnRunner } from '../../../lib/stores/etcd/txn-runner.js';
import { until } from '../../support/until.js';

const KEY = 'lock/key';
const WAITER = 'process:1';

const put = (key: string, value: string) => ({ type: 'PUT', kv: { key: base64(key), value: base64(value) } });
const removed = (key: string) => ({ type: 'DELETE', kv: { key: base64(key) } });

const DIGITS = 'ab'.repeat(16);

test.each([
  ['a lock', DIGITS],
  ['a detached lock', detachedIdOf(DIGITS)],
])('a KeyWatch wakes a waiter when one message has both an acquire of %s and its release', async (_, id) => {
  let message: ((message: unknown) => void) | undefined;
  const gateway = {
    stream: (_path: string, _body: object, onMessage: (message: unknown) => void) => {
      message = onMessage;
      return Promise.resolve({ close: () => undefined, cut: () => undefined });
    },
  } as unknown as Gateway;
  const transactions = {
    run: () => Promise.resolve({ header: { revision: '1' } }),
  } as unknown as TxnRunner;
  const told: (string | undefined)[] = [];
  const watcher: Watcher = {
    waiter: WAITER,
    told: (_after, _turn, released) => void told.push(released),
    changed: () => undefined,
    last: 'wait',
  };
  const watch = new KeyWatch(KEY, gateway, transactions);
  watch.watchers.add(watcher);
  await until(() => message !== undefined);
  const entry = `${KEY}\0q\0${'0'.repeat(16)}${WAITER}`;
  message?.({ result: { created: true } });
  message?.({ result: { events: [put(entry, waiterValue('me', { mode: 'exclusive' }))] } });
  expect(told).toEqual([undefined]);
  const name = holderName(KEY, 'exclusive', id);
  // Both events come in one message, so the key is free before and after this message. With a message for each event,
  // the watch would see the key held and then free, and would wake the waiter because of this change.
  message?.({
    result: {
      events: [put(name, holderValue({ id, owner: 'other', since: 0, permits: 0, base: 0 })), removed(name)],
    },
  });
  expect(told).toEqual([undefined, id]);
  watch.close();
});
