import { getEventListeners } from 'node:events';
import { expect, test } from '@jest/globals';
import { onAbort } from '../../lib/core/on-abort.js';

/** Calls a function when the signal aborts. Returns a function that removes the listener. */
function whenAborted(signal: AbortSignal, callback: () => void): () => void {
  const watch = onAbort(signal, { aborted: callback });
  return () => watch.stop();
}

test('onAbort calls each remaining listener exactly once, even after many were added and some removed', () => {
  const { signal, abort } = abortable();
  const called: number[] = [];
  const stops = Array.from({ length: 100 }, (_, index) => whenAborted(signal, () => called.push(index)));
  const gone = [99, 0, 50, 98, 1, 97, 2, 49];
  for (const index of gone) stops[index]?.();
  const late = whenAborted(signal, () => called.push(100));
  late();
  whenAborted(signal, () => called.push(101));

  abort();

  const expected = [...Array.from({ length: 100 }, (_, index) => index), 101].filter(
    (index) => !gone.includes(index),
  );
  expect(called.toSorted((a, b) => a - b)).toEqual(expected);
});

test('onAbort keeps the other listeners when one listener is removed twice', () => {
  const { signal, abort } = abortable();
  const called: string[] = [];
  const stop = whenAborted(signal, () => called.push('first'));
  whenAborted(signal, () => called.push('second'));
  whenAborted(signal, () => called.push('third'));
  stop();
  stop();

  abort();

  expect(called.toSorted()).toEqual(['second', 'third']);
});

test('onAbort does not call a listener that another listener removed', () => {
  const { signal, abort } = abortable();
  const called: string[] = [];
  const stops = ['a', 'b', 'c'].map((name) =>
    whenAborted(signal, () => {
      called.push(name);
      for (const stop of stops) stop();
    }),
  );

  abort();

  expect(called).toHaveLength(1);
});

test('onAbort adds one listener to the signal for all callbacks, and removes it with the last callback', () => {
  const { signal } = abortable();
  const stops = Array.from({ length: 20 }, () => whenAborted(signal, () => undefined));
  expect(getEventListeners(signal, 'abort')).toHaveLength(1);
  for (const stop of stops) stop();
  expect(getEventListeners(signal, 'abort')).toHaveLength(0);

  const again = whenAborted(signal, () => undefined);
  expect(getEventListeners(signal, 'abort')).toHaveLength(1);
  again();
  expect(getEventListeners(signal, 'abort')).toHaveLength(0);
});

function abortable(): { readonly signal: AbortSignal; readonly abort: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}
