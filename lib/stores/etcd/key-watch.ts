import { ahead, inTheWay } from '../../core/admission.js';
import { STANDBY_MS } from '../../core/store-times.js';
import type { Gateway, OpenStream } from './gateway.js';
import { type FoundWaiter, type KeyView, viewOf } from './key-view.js';
import { parseHolderName, viewRange } from './names.js';
import { type Entry, entriesAt, entryOf, get, rangeOf, revisionOf, type WatchReply } from './protocol.js';
import type { TxnRunner } from './txn-runner.js';

/** The shortest pause before an ended stream is opened again, in milliseconds. */
const SHORTEST_PAUSE_MS = 20;
/** The longest pause before an ended stream is opened again, in milliseconds. */
const LONGEST_PAUSE_MS = 1_000;

const LOOK_LIMIT_MS = 2_000;

/** A waiter for the key. */
export interface Watcher {
  readonly waiter: string;
  /**
   * Tells the waiter that it may try after `after` milliseconds. `turn` is `true` if the waiter is the first and the
   * key is free.
   */
  readonly told: (after: number, turn: boolean, released?: string) => void;
  /** Called when the watch has begun or ended. */
  readonly changed: () => void;
  /** The last message to the waiter. The same message is not sent twice. */
  last: 'wait' | 'stand by' | 'try';
}

/**
 * Watches the holders and the queue of a key through one stream, and tells the waiters of this process when it is their
 * turn. Each watch takes a connection to the gateway, so a key has one watch, instead of one for each waiter. All
 * processes see each change, but only the first waiter asks.
 */
export class KeyWatch {
  readonly watchers = new Set<Watcher>();
  readonly #entries = new Map<string, Entry>();
  #stream: OpenStream | undefined;
  #isReady = false;
  #isClosed = false;
  #again: NodeJS.Timeout | undefined;
  #pause = SHORTEST_PAUSE_MS;

  constructor(
    private readonly key: string,
    private readonly gateway: Gateway,
    private readonly transactions: TxnRunner,
  ) {
    void this.#open();
  }

  get ready(): boolean {
    return this.#isReady;
  }

  close(): void {
    this.#isClosed = true;
    this.#isReady = false;
    clearTimeout(this.#again);
    this.#stream?.close();
  }

  /** Reads the present state, and then all changes from its revision on, so that no change is missed. */
  async #open(): Promise<void> {
    try {
      const reply = await this.transactions.run({ success: [get(viewRange(this.key))] }, LOOK_LIMIT_MS);
      if (this.#isClosed) return;
      this.#entries.clear();
      for (const entry of entriesAt(reply, 0)) this.#entries.set(entry.key, entry);
      const start_revision = String(revisionOf(reply.header) + 1);
      const create_request = { ...rangeOf(viewRange(this.key)), start_revision };
      const stream = await this.gateway.stream(
        'watch',
        { create_request },
        (message) => this.#take(message as WatchReply),
        () => this.#ended(),
      );
      this.#stream = stream;
      if (this.#isClosed) stream.close();
    } catch {
      this.#ended();
    }
  }

  /**
   * Opens the watch again after its end, and reads the state again: etcd may have ended the watch because its first
   * revision was compacted.
   */
  #ended(): void {
    if (this.#isClosed) return;
    this.#setReady(false);
    this.#again = setTimeout(() => void this.#open(), this.#pause * (0.5 + Math.random() / 2)).unref();
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  #take({ result, error }: WatchReply): void {
    if (!result || error !== undefined || result.canceled) return this.#stream?.cut();
    if (result.created) this.#setReady(true);
    let released: string | undefined;
    const taken = new Set<string>();
    for (const { type, kv } of result.events ?? []) {
      const entry = entryOf(kv);
      const holder = parseHolderName(this.key, entry.key);
      if (type !== 'DELETE') {
        this.#entries.set(entry.key, entry);
        if (holder) taken.add(entry.key);
        continue;
      }
      const before = this.#entries.get(entry.key);
      this.#entries.delete(entry.key);
      if (!holder) continue;
      // Only the value of a detached lock says that it is one.
      released = (before && viewOf(this.key, [before]).holders[0]?.id) ?? holder.id;
      // This message shows that a holder has taken and freed the key. A waiter that was told to try may have been
      // refused because of that holder, so this process must tell the waiter again.
      if (taken.has(entry.key)) for (const watcher of this.watchers) watcher.last = 'wait';
    }
    this.tell(released);
  }

  #setReady(isReady: boolean): void {
    if (isReady) this.#pause = SHORTEST_PAUSE_MS;
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    for (const watcher of this.watchers) watcher.changed();
    if (isReady) this.tell(undefined);
  }

  /** @param released - the id of the lease that has freed the key */
  tell(released: string | undefined): void {
    const entries = [...this.#entries.values()].toSorted((a, b) => (a.key < b.key ? -1 : 1));
    const view = viewOf(this.key, entries);
    for (const watcher of this.watchers) {
      const state = stateOf(view, watcher.waiter);
      if (state === watcher.last) continue;
      watcher.last = state;
      if (state === 'try') watcher.told(0, true, released);
      if (state === 'stand by') watcher.told(STANDBY_MS, false, released);
    }
  }
}

/** The next step of a waiter, from the known state. */
function stateOf(view: KeyView, waiter: string): Watcher['last'] {
  const entry = view.waiters.find((each) => each.waiter === waiter);
  if (!entry) return 'wait';
  const { kind } = entry;
  const head: FoundWaiter | undefined = ahead(view, kind, waiter, entry.name);
  if (!head) return inTheWay(view, kind).length === 0 ? 'try' : 'wait';
  const isSecond = view.waiters.findIndex(({ name }) => name === entry.name) === 1;
  return isSecond && inTheWay(view, head.kind).length === 0 ? 'stand by' : 'wait';
}
