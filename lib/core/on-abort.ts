import { NO_SLOT, SlotList } from './slot-list.js';

/** Somebody who waits for a signal, and not a function: one is made for each lock. */
export interface Abortable {
  aborted(signal: AbortSignal): void;
}

/** All who wait for one signal. */
interface Audience {
  readonly watches: SlotList<'slot', AbortWatch>;
  readonly stop: () => void;
}

const audiences = new WeakMap<AbortSignal, Audience>();

/** The wait of one for one signal, or for several, in a chain: mostly there is one, and no list is made. */
export class AbortWatch {
  /** For the list of all who wait for the signal. */
  slot = NO_SLOT;

  constructor(
    readonly target: Abortable,
    private readonly audience: Audience,
    private readonly next: AbortWatch | undefined,
  ) {
    audience.watches.add(this);
  }

  stop(): void {
    const { watches, stop } = this.audience;
    watches.delete(this);
    if (watches.size === 0) stop();
    this.next?.stop();
  }
}

/**
 * Calls `aborted` of the target when the signal aborts, unless the watch that is returned is stopped before. In no certain
 * order with others.
 *
 * A signal gets one listener, however many wait for it: from 11 on Node warns of a leak.
 *
 * @param next - is stopped with it: the watch of another signal
 */
export function onAbort(signal: AbortSignal, target: Abortable, next?: AbortWatch): AbortWatch {
  return new AbortWatch(target, audiences.get(signal) ?? listenTo(signal), next);
}

function listenTo(signal: AbortSignal): Audience {
  const watches = new SlotList<'slot', AbortWatch>('slot');
  const abort = (): void => {
    // What one of them does can end the wait of another.
    for (const watch of [...watches]) if (watches.has(watch)) watch.target.aborted(signal);
  };
  const stop = (): void => {
    signal.removeEventListener('abort', abort);
    if (audiences.get(signal) === audience) audiences.delete(signal);
  };
  const audience = { watches, stop };
  audiences.set(signal, audience);
  signal.addEventListener('abort', abort);
  return audience;
}
