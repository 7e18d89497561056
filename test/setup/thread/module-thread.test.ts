import { AsyncLocalStorage } from 'node:async_hooks';
import { EventEmitter } from 'node:events';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { THREAD_CHANNEL, type ThreadEvent } from '../../../lib/core/lock-events.js';
import type { Log } from '../../../lib/core/log.js';
import { RestartGuard } from '../../../lib/redlock/restart-guard.js';
import type { RenewalThread } from '../../../lib/redlock/renewal-ports.js';

/** The name of the running call. */
const call = new AsyncLocalStorage<string>();

/** A worker thread that does nothing by itself. */
class SilentWorker extends EventEmitter {
  static last: SilentWorker | undefined;
  readonly context = call.getStore();

  constructor() {
    super();
    SilentWorker.last = this;
  }

  ref(): void {}
  unref(): void {}
  postMessage(): void {}

  terminate(): Promise<number> {
    return Promise.resolve(0);
  }
}

jest.unstable_mockModule('node:worker_threads', () => ({ Worker: SilentWorker }));
const { newRenewalThread } = await import('../../../lib/setup/thread/module-thread.js');

const TERMS = {
  ...{ keyPrefix: 'lock:', guarded: false, mayForget: false, several: false },
  ...{ driftFactor: 0.01, nodeTimeout: undefined, guard: 0 },
};
/** Longer than a start may take, in milliseconds. */
const LONG_MS = 6_000;

let thread: RenewalThread;
let warnings: string[];
let reasons: string[];
const keep = (event: unknown): void => void reasons.push((event as ThreadEvent).reason);

beforeEach(() => {
  // A real `setImmediate` runs after all timers of a turn, as in the event loop.
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  SilentWorker.last = undefined;
  [warnings, reasons] = [[], []];
  subscribe(THREAD_CHANNEL, keep);
  const log = { warn: (text: string) => void warnings.push(text) } as unknown as Log;
  const reports = { instance: undefined, log, warnOnce: () => undefined };
  thread = newRenewalThread({ nodes: 'redis://localhost' }, TERMS, new RestartGuard(0), reports);
});
afterEach(() => {
  unsubscribe(THREAD_CHANNEL, keep);
  jest.useRealTimers();
});

test('a thread starts only when a lock may need it, and then before the nodes are connected', async () => {
  thread.begin();
  await thread.open();
  expect(SilentWorker.last).toBeUndefined();
  await thread.close();
  thread.foresee(true);
  expect(SilentWorker.last).toBeUndefined();
  thread.begin();
  expect(SilentWorker.last).toBeDefined();
});

test('a thread that the call of an application starts runs in no context of a call, and neither do its timers (S30)', async () => {
  await thread.open();
  const contexts: (string | undefined)[] = [];
  const { setTimeout } = globalThis;
  const timers = jest.spyOn(globalThis, 'setTimeout');
  timers.mockImplementation((...args) => {
    contexts.push(call.getStore());
    return setTimeout(...args);
  });
  call.run('caller', () => thread.foresee(true));
  timers.mockRestore();
  expect([SilentWorker.last?.context, ...contexts]).toEqual([undefined, undefined]);
});

test('a thread that does not connect is told, and the start of the application goes on', async () => {
  thread.foresee(true);
  let isOpen = false;
  void thread.open().then(() => (isOpen = true));
  await jest.advanceTimersByTimeAsync(LONG_MS);
  expect(isOpen).toBe(true);
  expect(reasons).toEqual(['slow']);
  expect(warnings).toEqual([expect.stringContaining('it has not connected to the nodes within 5000 ms')]);
});

test('a thread that has connected while the start of the application blocked the event loop is not told as slow', async () => {
  thread.foresee(true);
  const opened = thread.open();
  // The timer that is due runs before the message that has arrived.
  jest.advanceTimersByTime(LONG_MS);
  SilentWorker.last!.emit('message', { kind: 'ready' });
  await opened;
  await jest.advanceTimersByTimeAsync(LONG_MS);
  expect([reasons, warnings]).toEqual([[], []]);
});
