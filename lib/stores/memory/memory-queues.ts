import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { QueuePosition, Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';

/** How long the first in line has to take a lock that is free, in milliseconds, before it is dropped. */
const TURN_MS = 150;

/** How long after the first in line the second is to try, in milliseconds. */
const STANDBY_MS = 200;

interface Waiting {
  readonly waiter: WaiterId;
  /** When it came. */
  readonly arrived: number;
}

interface Turn {
  readonly waiter: WaiterId;
  readonly begins: Instant;
  readonly lasts: number;
}

type Heard = (after: number, turn: boolean) => void;

/** The queues of those who wait for locks in memory, in the order in which they came: what the scripts do in Redis. */
export class MemoryQueues {
  readonly #queues = new Map<string, Waiting[]>();
  readonly #turns = new Map<string, Turn>();
  readonly #listeners = new Map<WaiterId, Heard>();

  listen(waiter: WaiterId, heard: Heard): Subscription {
    this.#listeners.set(waiter, heard);
    return { ready: true, stop: () => this.#listeners.delete(waiter) };
  }

  /** Whose turn it is at a key that is free, and for how many milliseconds more, if the one who asks must not pass them. */
  ahead(
    key: string,
    position: QueuePosition | undefined,
  ): { readonly waiter: WaiterId; readonly remaining: number } | undefined {
    for (;;) {
      const [head] = this.#queues.get(key) ?? [];
      if (!head || head.waiter === position?.waiter) return undefined;
      if (position && performance.now() - position.waited < head.arrived) return undefined;
      const turn = this.#turns.get(key);
      if (turn?.waiter !== head.waiter) {
        this.wake(key, 0);
        continue;
      }
      const remaining = turn.lasts - elapsedSince(turn.begins);
      if (remaining > 0) return { waiter: head.waiter, remaining };
      this.#remove(key, head.waiter);
    }
  }

  /** Puts the one who was refused at `key` in line there, and nowhere else. */
  wait(key: string, { waiter, waited }: QueuePosition, isFree: (key: string) => boolean): void {
    this.leave(
      waiter,
      waiter.keys.filter((other) => other !== key),
      isFree,
    );
    this.#insert(key, { waiter, arrived: performance.now() - waited });
  }

  /** Its lease is granted: the one who asked leaves, and the next waiter of its process takes over the place. */
  granted(keys: readonly string[], { waiter, next }: QueuePosition): void {
    for (const key of keys) this.#remove(key, waiter);
    const [first] = keys;
    if (next !== undefined && first !== undefined) {
      this.#insert(first, { waiter, arrived: performance.now() - next });
    }
  }

  leave(waiter: WaiterId, keys: readonly string[], isFree: (key: string) => boolean): void {
    for (const key of keys) {
      if (this.#remove(key, waiter) && isFree(key)) this.wake(key, 0);
    }
  }

  /** Tells the first in line at a key that is free, and the second for the case that the first does not react. */
  wake(key: string, after: number): void {
    const queue = this.#queues.get(key) ?? [];
    const [head, second] = queue;
    if (!head) return;
    this.#turns.set(key, { waiter: head.waiter, begins: now(), lasts: after + TURN_MS });
    this.#listeners.get(head.waiter)?.(after, after === 0);
    if (second) this.#listeners.get(second.waiter)?.(after + STANDBY_MS, false);
  }

  #insert(key: string, waiting: Waiting): void {
    const others = (this.#queues.get(key) ?? []).filter(({ waiter }) => waiter !== waiting.waiter);
    const queue = [...others, waiting].toSorted((a, b) => a.arrived - b.arrived);
    this.#queues.set(key, queue);
  }

  #remove(key: string, waiter: WaiterId): boolean {
    const queue = this.#queues.get(key);
    if (!queue) return false;
    const rest = queue.filter((waiting) => waiting.waiter !== waiter);
    if (rest.length > 0) this.#queues.set(key, rest);
    else this.#queues.delete(key);
    if (this.#turns.get(key)?.waiter === waiter) this.#turns.delete(key);
    return rest.length < queue.length;
  }
}
