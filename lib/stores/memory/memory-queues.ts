import { canHoldTogether, type LockMode } from '../../core/lock-mode.js';
import { now } from '../../core/clock.js';
import type { KeyWaiter, QueuePosition, Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { type Life, remainingOf } from './memory-life.js';

/** How long the first in line has to take a lock that is free, in milliseconds, before it is dropped. */
const TURN_MS = 150;

/** How long after the first in line the second is to try, in milliseconds. */
const STANDBY_MS = 200;

interface Waiting {
  readonly waiter: WaiterId;
  /** When it came. */
  readonly arrived: number;
}

interface Turn extends Life {
  readonly waiter: WaiterId;
}

/** Who is in front of one who asks. */
export interface Ahead {
  readonly waiter: WaiterId;
  /** For how many milliseconds more it is its turn; `undefined` while others hold the key beside whom it cannot. */
  readonly remaining: number | undefined;
}

type Heard = (after: number, turn: boolean) => void;

/** The queues of those who wait for locks in memory, in the order in which they came: what the scripts do in Redis. */
export class MemoryQueues {
  readonly #queues = new Map<string, Waiting[]>();
  readonly #turns = new Map<string, Turn>();
  readonly #listeners = new Map<WaiterId, Heard>();

  /** @param admits - whether a key has room for one more holder of that mode, whoever waits for it */
  constructor(private readonly admits: (key: string, mode: LockMode) => boolean) {}

  listen(waiter: WaiterId, heard: Heard): Subscription {
    this.#listeners.set(waiter, heard);
    return { ready: true, stop: () => this.#listeners.delete(waiter) };
  }

  /**
   * Who is first in line at a key that would admit the one who asks, if that one must not pass.
   *
   * @param room - how many more of its mode can hold the key
   */
  ahead(key: string, mode: LockMode, room: number, position: QueuePosition | undefined): Ahead | undefined {
    for (;;) {
      const [head] = this.#queues.get(key) ?? [];
      if (!head || this.#mayPass(key, mode, room, position)) return undefined;
      const { waiter } = head;
      if (!this.admits(key, waiter.mode)) return { waiter, remaining: undefined };
      const turn = this.#turns.get(key);
      if (turn?.waiter !== waiter) {
        this.#wake(key, 0);
        continue;
      }
      const remaining = remainingOf(turn);
      if (remaining > 0) return { waiter, remaining };
      this.#remove(key, waiter);
    }
  }

  /** Puts the one who was refused at `key` in line there, and nowhere else. */
  wait(key: string, { waiter, waited }: QueuePosition): void {
    this.leave(
      waiter,
      waiter.keys.filter((other) => other !== key),
    );
    this.#insert(key, { waiter, arrived: performance.now() - waited });
  }

  /**
   * A lease is granted: the one who asked leaves, and the next waiter of its process takes over the place. Where there is
   * room for one more, the first in line is told.
   */
  granted(keys: readonly string[], position: QueuePosition | undefined): void {
    if (position) {
      const { waiter, next } = position;
      for (const key of keys) this.#remove(key, waiter);
      const [first] = keys;
      if (next !== undefined && first !== undefined)
        this.#insert(first, { waiter, arrived: performance.now() - next });
    }
    for (const key of keys) this.#wakeNext(key);
  }

  leave(waiter: WaiterId, keys: readonly string[]): void {
    for (const key of keys) if (this.#remove(key, waiter)) this.#wakeNext(key);
  }

  /** Those in the queue of a key, in order. */
  at(key: string): KeyWaiter[] {
    return (this.#queues.get(key) ?? []).map(({ waiter: { process, number, owner, mode }, arrived }) => ({
      ...{ process, number, owner, mode },
      // The same at each look, as the wall clock's distance to it would not be.
      since: Math.round(performance.timeOrigin + arrived),
    }));
  }

  /** A holder has let the key go, or will in so many milliseconds. */
  freed(key: string, after: number, left = 0): void {
    const [head] = this.#queues.get(key) ?? [];
    if (head && (left > 0 || this.admits(key, head.waiter.mode))) this.#wake(key, Math.max(after, left));
  }

  /** Nobody in front of it stays out because of it: all can hold it together, and there is room for all. */
  #mayPass(key: string, mode: LockMode, room: number, position: QueuePosition | undefined): boolean {
    const queue = this.#queues.get(key) ?? [];
    if (queue[0]?.waiter === position?.waiter) return true;
    const came = position ? performance.now() - position.waited : Infinity;
    const inFront = queue.filter(({ waiter, arrived }) => waiter !== position?.waiter && arrived <= came);
    return inFront.length < room && inFront.every(({ waiter }) => canHoldTogether(waiter.mode, mode));
  }

  /** Tells the first in line, unless it has just been told. */
  #wakeNext(key: string): void {
    const turn = this.#turns.get(key);
    const [head] = this.#queues.get(key) ?? [];
    const isTold = turn && turn.waiter === head?.waiter && remainingOf(turn) > 0;
    if (!isTold) this.freed(key, 0);
  }

  /**
   * Tells the first in line when it may try, and the second for the case that it does not react. Readers next to each
   * other go together.
   */
  #wake(key: string, after: number): void {
    const [head, ...others] = this.#queues.get(key) ?? [];
    if (!head) return;
    this.#turns.set(key, { waiter: head.waiter, began: now(), ttl: after + TURN_MS });
    this.#tell(head, after);
    if (head.waiter.mode !== 'shared') {
      const [second] = others;
      if (second) this.#tell(second, after + STANDBY_MS);
      return;
    }
    for (const other of others) {
      if (other.waiter.mode !== 'shared') return;
      this.#tell(other, after);
    }
  }

  #tell({ waiter }: Waiting, after: number): void {
    this.#listeners.get(waiter)?.(after, after === 0);
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
