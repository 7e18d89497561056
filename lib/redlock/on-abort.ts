interface Waiting {
  readonly callbacks: Set<() => void>;
  readonly stop: () => void;
}

const waitingFor = new WeakMap<AbortSignal, Waiting>();

/**
 * Calls `callback` when the signal aborts, unless the function that is returned is called before.
 *
 * A signal gets one listener, however many wait for it: from 11 on Node warns of a leak.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const waiting = waitingFor.get(signal) ?? listenTo(signal);
  waiting.callbacks.add(callback);
  return () => {
    waiting.callbacks.delete(callback);
    if (waiting.callbacks.size === 0) waiting.stop();
  };
}

function listenTo(signal: AbortSignal): Waiting {
  const callbacks = new Set<() => void>();
  const abort = (): void => {
    for (const callback of callbacks) callback();
  };
  const stop = (): void => {
    signal.removeEventListener('abort', abort);
    if (waitingFor.get(signal) === waiting) waitingFor.delete(signal);
  };
  const waiting = { callbacks, stop };
  waitingFor.set(signal, waiting);
  signal.addEventListener('abort', abort);
  return waiting;
}
