import { neutrally } from './neutral.js';
import { NO_SLOT, SlotList } from './slot-list.js';

/**
 * A listener to a signal. It is an object and not a function: otherwise each lock would have to make a new function.
 */
export interface Abortable {
  aborted(signal: AbortSignal): void;
}

/** All listeners of one signal. */
interface Audience {
  readonly watches: SlotList<'slot', AbortWatch>;
  readonly stop: () => void;
}

const audiences = new WeakMap<AbortSignal, Audience>();

/**
 * The registration of one listener with one signal. A listener to several signals has a chain of registrations: usually
 * there is only one signal, and a list would cost more.
 */
export class AbortWatch {
  /** The position in the list of all listeners of the signal. */
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
 * Calls `aborted` of the target when the signal aborts, unless the returned watch is stopped first. The order among
 * several targets is not defined.
 *
 * A signal gets one event listener for all targets, because Node warns of a leak when a signal has 11 listeners.
 *
 * @param next - the watch of another signal; it stops together with the returned watch
 */
export function onAbort(signal: AbortSignal, target: Abortable, next?: AbortWatch): AbortWatch {
  return new AbortWatch(target, audiences.get(signal) ?? listenTo(signal), next);
}

function listenTo(signal: AbortSignal): Audience {
  const watches = new SlotList<'slot', AbortWatch>('slot');
  const tellAll = (): void => {
    // The reaction of one target can stop the watch of another target.
    for (const watch of [...watches]) if (watches.has(watch)) watch.target.aborted(signal);
  };
  // The code that aborts the signal runs in its own context, and the targets belong to other calls (S30).
  const abort = (): void => neutrally(tellAll);
  const stop = (): void => {
    signal.removeEventListener('abort', abort);
    if (audiences.get(signal) === audience) audiences.delete(signal);
  };
  const audience = { watches, stop };
  audiences.set(signal, audience);
  signal.addEventListener('abort', abort);
  return audience;
}
