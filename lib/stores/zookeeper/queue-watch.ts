import { ahead, inTheWay } from '../../core/admission.js';
import { LONGEST_TIMER_MS } from '../../core/checks.js';
import { neutrally } from '../../core/neutral.js';
import { STANDBY_MS } from '../../core/store-times.js';
import { exists } from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import { type KeyRecords, orNothing } from './key-records.js';
import { type KeyView, liveHolders, msUntilOver } from './key-view.js';
import type { Names, WaiterEntry } from './names.js';

/** Milliseconds after which a look that failed is repeated. */
const LOOK_AGAIN_MS = 1_000;

/** A waiter for the key in this process. */
export interface Watcher {
  readonly waiter: string;
  /**
   * Tells the waiter that it may try after `after` milliseconds. `turn` is `true` if the waiter is the first and the
   * key is free.
   */
  readonly told: (after: number, turn: boolean, released?: string) => void;
  /** The last message to the waiter. The same message is not sent twice. */
  last: 'wait' | 'stand by' | 'try';
}

export interface WatchContext {
  readonly client: ZooKeeperClient;
  readonly records: KeyRecords;
  readonly names: Names;
}

/**
 * Tells the waiters of this process for one key when it is their turn.
 *
 * Only waiters that may be next watch the record of the key: the first two, and those that can hold the key together with
 * all waiters in front of them. Each other waiter watches the entry in front of its own, so that a release wakes few
 * processes.
 */
export class QueueWatch {
  readonly watchers = new Set<Watcher>();
  #isLooking = false;
  #looksAgain = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  /** The id of the lock that had been released last. */
  #ended: string | undefined;

  constructor(
    private readonly key: string,
    private readonly context: WatchContext,
  ) {}

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  /** Reads the queue and the record, sets watches, and tells the waiters what has changed. */
  look(): void {
    this.#looksAgain = true;
    if (!this.#isLooking) void neutrally(() => this.#lookUntilStill());
  }

  async #lookUntilStill(): Promise<void> {
    this.#isLooking = true;
    try {
      while (this.#looksAgain && !this.#isClosed) {
        this.#looksAgain = false;
        await this.#lookOnce();
      }
    } catch {
      // Without a connection there are no messages, and the next connection looks again. With one, no watch is set now.
      if (this.context.client.available) this.#lookIn(LOOK_AGAIN_MS);
    } finally {
      this.#isLooking = false;
    }
  }

  async #lookOnce(): Promise<void> {
    const { client, names, records } = this.context;
    const queue = await records.queueOf(this.key);
    const entries = this.#own(queue);
    const isNear = entries.some((entry) => mayBeNext(queue, entry));
    // The foremost of the others is enough: those behind it can move up only after it.
    const far = entries.find((entry) => !mayBeNext(queue, entry) || queue[1] === entry);
    const before = far && queue[queue.indexOf(far) - 1];
    const [view, isThere] = await Promise.all([
      isNear ? records.read(this.key, true) : undefined,
      before ? orNothing(client, exists(`${names.queueOf(this.key)}/${before.name}`, true)) : true,
    ]);
    if (isThere === undefined) this.#looksAgain = true;
    if (view && !this.#isClosed) this.#tell(view);
  }

  #own(queue: readonly WaiterEntry[]): readonly WaiterEntry[] {
    const mine = new Set([...this.watchers].map(({ waiter }) => waiter));
    return queue.filter(({ waiter }) => mine.has(waiter));
  }

  #tell(view: KeyView): void {
    const { ended } = view.record;
    const released = ended === this.#ended ? undefined : ended;
    this.#ended = ended;
    // A waiter that was told to try may have been refused because of the lock that has ended since.
    if (released !== undefined) for (const watcher of this.watchers) watcher.last = 'wait';
    const live = liveHolders(view);
    for (const watcher of this.watchers) {
      const state = stateOf(view, live, watcher.waiter);
      if (state === watcher.last) continue;
      watcher.last = state;
      if (state === 'try') watcher.told(0, true, released);
      if (state === 'stand by') watcher.told(STANDBY_MS, false, released);
    }
    this.#lookAtEnd(view);
  }

  /** Looks again when the lock of a holder has ended without a release. */
  #lookAtEnd(view: KeyView): void {
    const ends = liveHolders(view).map((holder) => msUntilOver(view, holder));
    if (ends.length === 0) clearTimeout(this.#timer);
    else this.#lookIn(Math.min(Math.ceil(Math.min(...ends)) + 1, LONGEST_TIMER_MS));
  }

  /** Replaces the time of the next look. */
  #lookIn(ms: number): void {
    clearTimeout(this.#timer);
    if (!this.#isClosed) this.#timer = neutrally(setTimeout, () => this.look(), ms).unref();
  }
}

/** `true` if the waiter may get the key, or must step in for the first waiter, after the next change of the record. */
function mayBeNext(queue: readonly WaiterEntry[], { kind, waiter, name }: WaiterEntry): boolean {
  return queue[1]?.name === name || !ahead({ holders: [], waiters: queue }, kind, waiter, name);
}

/** The next step of a waiter, from the known state. */
function stateOf(view: KeyView, holders: ReturnType<typeof liveHolders>, waiter: string): Watcher['last'] {
  const { waiters } = view;
  const entry = waiters.find((each) => each.waiter === waiter);
  if (!entry) return 'wait';
  const head = ahead({ holders, waiters }, entry.kind, waiter, entry.name);
  if (!head) return inTheWay({ holders }, entry.kind).length === 0 ? 'try' : 'wait';
  return waiters[1] === entry && inTheWay({ holders }, head.kind).length === 0 ? 'stand by' : 'wait';
}
