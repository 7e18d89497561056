import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { Listening, QueuePosition } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';

/** How long the first in line has to take a lock that is free, in milliseconds, before it is dropped. */
const TURN_MS = 150;

/** How long after the first in line the second is to try, in milliseconds. */
const STANDBY_MS = 200;

interface Waiting {
  readonly place: WaiterId;
  /** When it came. */
  readonly arrived: number;
}

interface Turn {
  readonly place: WaiterId;
  readonly begins: Instant;
  readonly lasts: number;
}

type Heard = (after: number, turn: boolean) => void;

/** The queues of those who wait for locks in memory, in the order in which they came: what the scripts do in Redis. */
export class MemoryQueues {
  readonly #queues = new Map<string, Waiting[]>();
  readonly #turns = new Map<string, Turn>();
  readonly #listeners = new Map<WaiterId, Heard>();

  listen(place: WaiterId, heard: Heard): Listening {
    this.#listeners.set(place, heard);
    return { ready: true, stop: () => this.#listeners.delete(place) };
  }

  /** Whose turn it is at a key that is free, and for how many milliseconds more, if the one who asks must not pass them. */
  ahead(
    key: string,
    order: QueuePosition | undefined,
  ): { readonly place: WaiterId; readonly remaining: number } | undefined {
    for (;;) {
      const [head] = this.#queues.get(key) ?? [];
      if (!order || !head || head.place === order.place) return undefined;
      if (order.place && performance.now() - order.waited < head.arrived) return undefined;
      const turn = this.#turns.get(key);
      if (turn?.place !== head.place) {
        this.wake(key, 0);
        continue;
      }
      const remaining = turn.lasts - elapsedSince(turn.begins);
      if (remaining > 0) return { place: head.place, remaining };
      this.#remove(key, head.place);
    }
  }

  /** Puts the one who was refused at `key` in line there, and nowhere else. */
  wait(key: string, { place, waited }: QueuePosition, isFree: (key: string) => boolean): void {
    if (!place) return;
    this.leave(
      place,
      place.keys.filter((other) => other !== key),
      isFree,
    );
    this.#insert(key, { place, arrived: performance.now() - waited });
  }

  /** Its claim is granted: the one who asked leaves, and the next waiter of its process takes the place. */
  granted(keys: readonly string[], { place, next }: QueuePosition): void {
    if (!place) return;
    for (const key of keys) this.#remove(key, place);
    const [first] = keys;
    if (next !== undefined && first !== undefined) {
      this.#insert(first, { place, arrived: performance.now() - next });
    }
  }

  leave(place: WaiterId, keys: readonly string[], isFree: (key: string) => boolean): void {
    for (const key of keys) {
      if (this.#remove(key, place) && isFree(key)) this.wake(key, 0);
    }
  }

  /** Tells the first in line at a key that is free, and the second for the case that the first does not react. */
  wake(key: string, after: number): void {
    const queue = this.#queues.get(key) ?? [];
    const [head, second] = queue;
    if (!head) return;
    this.#turns.set(key, { place: head.place, begins: now(), lasts: after + TURN_MS });
    this.#listeners.get(head.place)?.(after, after === 0);
    if (second) this.#listeners.get(second.place)?.(after + STANDBY_MS, false);
  }

  #insert(key: string, waiting: Waiting): void {
    const others = (this.#queues.get(key) ?? []).filter(({ place }) => place !== waiting.place);
    const queue = [...others, waiting].toSorted((a, b) => a.arrived - b.arrived);
    this.#queues.set(key, queue);
  }

  #remove(key: string, place: WaiterId): boolean {
    const queue = this.#queues.get(key);
    if (!queue) return false;
    const rest = queue.filter((waiting) => waiting.place !== place);
    if (rest.length > 0) this.#queues.set(key, rest);
    else this.#queues.delete(key);
    if (this.#turns.get(key)?.place === place) this.#turns.delete(key);
    return rest.length < queue.length;
  }
}
