import type { Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { Gateway } from './gateway.js';
import { KeyWatch, type Watcher } from './key-watch.js';
import { type Names, waiterName } from './names.js';
import type { TxnRunner } from './txn-runner.js';

/**
 * Largest number of keys that a process watches at a time. Each watch takes a connection, so waiters for further keys
 * poll.
 */
const MOST_WATCHES = 100;

/**
 * Longest delay in milliseconds before a waiter asks again after its messages have stopped. Each waiter takes a random
 * delay up to this limit, so that the waiters do not all ask at once.
 */
const UNWATCHED_JITTER_MS = 100;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/** Tells the waiters of this process when they may try. */
export class Watches {
  readonly #watches = new Map<string, KeyWatch>();

  constructor(
    private readonly gateway: Gateway,
    private readonly transactions: TxnRunner,
    private readonly names: Names,
  ) {}

  listen(waiter: WaiterId, onMessage: OnMessage): Subscription {
    const keys = waiter.keys.map((key) => this.names.of(key));
    const watches = keys.map((key) => this.#watch(key));
    let isReady = false;
    let isStopped = false;
    const ready = (): boolean => !isStopped && watches.every((watch) => watch?.ready === true);
    const changed = (): void => {
      if (ready() === isReady) return;
      isReady = !isReady;
      onMessage(isReady ? 0 : Math.random() * UNWATCHED_JITTER_MS, false);
    };
    const watchers = watches.map((): Watcher => ({
      waiter: waiterName(waiter),
      told: onMessage,
      changed,
      last: 'wait',
    }));
    for (const [index, watch] of watches.entries()) watch?.watchers.add(watchers[index] as Watcher);
    changed();
    return {
      get ready() {
        return ready();
      },
      stop: () => {
        isStopped = true;
        for (const [index, watch] of watches.entries())
          if (watch) this.#leave(keys[index] as string, watch, watchers[index] as Watcher);
      },
    };
  }

  close(): void {
    for (const watch of this.#watches.values()) watch.close();
    this.#watches.clear();
  }

  #watch(key: string): KeyWatch | undefined {
    const known = this.#watches.get(key);
    if (known || this.#watches.size >= MOST_WATCHES) return known;
    const watch = new KeyWatch(key, this.gateway, this.transactions);
    this.#watches.set(key, watch);
    return watch;
  }

  #leave(key: string, watch: KeyWatch, watcher: Watcher): void {
    watch.watchers.delete(watcher);
    if (watch.watchers.size > 0 || this.#watches.get(key) !== watch) return;
    this.#watches.delete(key);
    watch.close();
  }
}
