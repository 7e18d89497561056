import { NO_SLOT, SlotList } from './slot-list.js';

/** Somebody who waits for a signal. */
interface Waiter {
  readonly callback: () => void;
  slot: number;
}

interface Waiting {
  readonly waiters: SlotList<'slot', Waiter>;
  readonly stop: () => void;
}

const waitingFor = new WeakMap<AbortSignal, Waiting>();

/**
 * Calls `callback` when the signal aborts, unless the function that is returned is called before. In no certain order
 * with others.
 *
 * A signal gets one listener, however many wait for it: from 11 on Node warns of a leak.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const { waiters, stop } = waitingFor.get(signal) ?? listenTo(signal);
  const waiter: Waiter = { callback, slot: NO_SLOT };
  waiters.add(waiter);
  return () => {
    waiters.delete(waiter);
    if (waiters.size === 0) stop();
  };
}

function listenTo(signal: AbortSignal): Waiting {
  const waiters = new SlotList<'slot', Waiter>('slot');
  const abort = (): void => {
    // What one of them does can end the wait of another.
    for (const waiter of [...waiters]) if (waiters.has(waiter)) waiter.callback();
  };
  const stop = (): void => {
    signal.removeEventListener('abort', abort);
    if (waitingFor.get(signal) === waiting) waitingFor.delete(signal);
  };
  const waiting = { waiters, stop };
  waitingFor.set(signal, waiting);
  signal.addEventListener('abort', abort);
  return waiting;
}
