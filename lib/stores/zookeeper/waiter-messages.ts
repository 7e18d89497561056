import type { Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { ANY_VERSION, remove } from './client/requests.js';
import { isRefusal, Refusal } from './client/zookeeper-error.js';
import { nodeIn, waiterName } from './names.js';
import { QueueWatch, type WatchContext, type Watcher } from './queue-watch.js';

/**
 * Longest delay in milliseconds before a waiter asks again after its messages have stopped. Each waiter takes a random
 * delay up to this limit, so that the waiters do not all ask at once.
 */
const UNWATCHED_JITTER_MS = 100;

/** Time limit in milliseconds for leaving a queue. */
const LEAVE_LIMIT_MS = 2_000;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/** The waiters of this process: their messages, and the end of their waits. */
export class WaiterMessages {
  /** The watches, by the names of the keys' nodes. */
  readonly #watches = new Map<string, QueueWatch>();
  readonly #listeners = new Set<OnMessage>();
  /** The waiters that may have an entry in a queue. */
  readonly #queued = new Set<string>();
  /** The waiters whose removal from the queues was not confirmed. The entry of a waiter lasts as long as the session. */
  readonly #leaving = new Set<WaiterId>();
  #isClosed = false;

  constructor(private readonly context: WatchContext) {}

  /** Called when the client accepts requests: no watch of an earlier connection is set any more. */
  connected(): void {
    for (const watch of this.#watches.values()) watch.look();
    for (const onMessage of this.#listeners) onMessage(0, false);
    // A waiter that fails again is removed over the next connection.
    for (const waiter of this.#leaving) void this.#leaveAll(waiter).catch(() => undefined);
  }

  lost(): void {
    for (const onMessage of this.#listeners) onMessage(Math.random() * UNWATCHED_JITTER_MS, false);
  }

  /** Called when a watched node has changed. */
  changed(path: string): void {
    this.#watches.get(nodeIn(path))?.look();
  }

  /** Called before a request may add the waiter to a queue. */
  mayQueue(waiter: WaiterId): void {
    this.#queued.add(waiterName(waiter));
  }

  /** Called when the waiter is in no queue any more. */
  isOut(waiter: WaiterId): void {
    this.#queued.delete(waiterName(waiter));
  }

  /** Called when the waiter is in the queue of the key. */
  isQueuedAt(key: string): void {
    this.#watches.get(this.context.names.nodeOf(key))?.look();
  }

  listen(waiter: WaiterId, onMessage: OnMessage): Subscription {
    const { client } = this.context;
    const watchers = waiter.keys.map((key): readonly [QueueWatch, Watcher] => {
      const watcher: Watcher = { waiter: waiterName(waiter), told: onMessage, last: 'wait' };
      const watch = this.#watchOf(key);
      watch.watchers.add(watcher);
      return [watch, watcher];
    });
    this.#listeners.add(onMessage);
    let isStopped = false;
    return {
      get ready() {
        return !isStopped && client.available;
      },
      stop: () => {
        isStopped = true;
        this.#listeners.delete(onMessage);
        for (const [at, [watch, watcher]] of watchers.entries())
          this.#unwatch(waiter.keys[at] ?? '', watch, watcher);
      },
    };
  }

  async leave(waiter: WaiterId): Promise<void> {
    if (!this.#queued.delete(waiterName(waiter))) return;
    this.#leaving.add(waiter);
    await this.#leaveAll(waiter);
  }

  async #leaveAll(waiter: WaiterId): Promise<void> {
    await Promise.all(waiter.keys.map((key) => this.#leave(key, waiterName(waiter))));
    this.#leaving.delete(waiter);
  }

  close(): void {
    this.#isClosed = true;
    for (const watch of this.#watches.values()) watch.close();
    this.#watches.clear();
    this.#leaving.clear();
    this.#listeners.clear();
  }

  async #leave(key: string, waiter: string): Promise<void> {
    const { client, names, records } = this.context;
    // The entry may have been sent to another server, over an earlier connection of the session.
    const queue = await records.newest(() => records.queueOf(key));
    const entries = queue.filter((entry) => entry.waiter === waiter);
    await Promise.all(
      entries.map(async ({ name }) => {
        try {
          await client.ask(remove(`${names.queueOf(key)}/${name}`, ANY_VERSION), LEAVE_LIMIT_MS);
        } catch (error) {
          if (!isRefusal(error, Refusal.noNode)) throw error;
        }
      }),
    );
  }

  #watchOf(key: string): QueueWatch {
    const node = this.context.names.nodeOf(key);
    let watch = this.#watches.get(node);
    if (!watch) this.#watches.set(node, (watch = new QueueWatch(key, this.context)));
    return watch;
  }

  #unwatch(key: string, watch: QueueWatch, watcher: Watcher): void {
    watch.watchers.delete(watcher);
    if (this.#isClosed) return;
    // Waiters behind this one may be the next ones now.
    if (watch.watchers.size > 0) return watch.look();
    watch.close();
    this.#watches.delete(this.context.names.nodeOf(key));
  }
}
