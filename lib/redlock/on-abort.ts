/** Somebody who waits for a signal. */
interface Waiter {
  readonly callback: () => void;
  /** Where it stands among the others; -1 when it does not wait any more. */
  slot: number;
}

interface Waiting {
  // Not a Set: V8 replaces the table of one that entries come to and leave all the time. The old tables of one that lives
  // long keep what was in them from the collection of young garbage; of many short waits that takes a third of the time.
  readonly waiters: Waiter[];
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
  const waiter: Waiter = { callback, slot: waiters.length };
  waiters.push(waiter);
  return () => {
    const last = waiters.at(-1);
    if (waiter.slot < 0 || !last) return;
    // The last one takes its slot.
    waiters[waiter.slot] = last;
    last.slot = waiter.slot;
    waiters.pop();
    waiter.slot = -1;
    if (waiters.length === 0) stop();
  };
}

function listenTo(signal: AbortSignal): Waiting {
  const waiters: Waiter[] = [];
  const abort = (): void => {
    // What one of them does can end the wait of another.
    for (const waiter of [...waiters]) if (waiter.slot >= 0) waiter.callback();
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
