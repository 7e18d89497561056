import { canHoldTogether, type LockMode } from '../../core/lock-mode.js';
import { now } from '../../core/clock.js';
import type { KeyWaiter, QueuePosition, Subscription } from '../../core/ports.js';
import { SAME_CALL_MS, STANDBY_MS, TURN_MS } from '../../core/store-times.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { type Life, remainingOf } from './memory-life.js';

interface Waiting {
  readonly waiter: WaiterId;
  /** The time at which the waiter came. */
  readonly arrived: number;
}

interface Turn extends Life {
  readonly waiter: WaiterId;
}

/** The waiter in front of a caller. */
export interface Ahead {
  readonly waiter: WaiterId;
  /** Milliseconds that are left of the waiter's turn; `undefined` while holders exclude the waiter. */
  readonly remaining: number | undefined;
}

/** The number of waiters behind the first one that are told, too. */
const STANDBYS = 2;

type OnMessage = (after: number, turn: boolean, released?: string) => void;

/**
 * The queues of waiters for locks in memory, in the order of their arrival. They behave like the queues of the Redis
 * scripts.
 */
export class MemoryQueues {
  readonly #queues = new Map<string, Waiting[]>();
  readonly #turns = new Map<string, Turn>();
  readonly #listeners = new Map<WaiterId, OnMessage>();

  /** @param admits - returns `true` if a key has room for one more holder of that mode; waiters do not count */
  constructor(private readonly admits: (key: string, mode: LockMode) => boolean) {}

  listen(waiter: WaiterId, onMessage: OnMessage): Subscription {
    this.#listeners.set(waiter, onMessage);
    return { ready: true, stop: () => this.#listeners.delete(waiter) };
  }

  /**
   * The waiter that the caller must not overtake, on a key whose holders leave room for the caller: the first waiter of
   * the queue. `undefined` if the caller may pass. Removes a first waiter that has not used its turn. Moves the entry of a call
   * of the caller's process that gave up to the place of the caller.
   *
   * @param room - the number of further holders of the caller's mode that the key admits
   */
  ahead(key: string, mode: LockMode, room: number, position: QueuePosition | undefined): Ahead | undefined {
    for (;;) {
      const [head] = this.#queues.get(key) ?? [];
      if (head && position && isOfEarlierCall(head, position)) {
        this.#remove(key, head.waiter);
        this.#insert(key, newEntry(position));
        continue;
      }
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

  /** Adds a caller that was refused at `key` to the queue of that key, and to no other queue. */
  wait(key: string, position: QueuePosition): void {
    const { waiter } = position;
    this.leave(
      waiter,
      waiter.keys.filter((other) => other !== key),
    );
    this.#insert(key, newEntry(position));
  }

  /**
   * Records a grant: the caller leaves the queues, and the next waiter of its process takes over its position. If there
   * is room for another holder, the first waiter gets a message.
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

  /** The waiters of a key, in the order of the queue. */
  at(key: string): KeyWaiter[] {
    return (this.#queues.get(key) ?? []).map(({ waiter: { process, number, owner, mode }, arrived }) => ({
      ...{ process, number, owner, mode },
      // Computed from `timeOrigin`, so that each read returns the same number, also when the wall clock is set.
      since: Math.round(performance.timeOrigin + arrived),
    }));
  }

  /**
   * Records that a holder has freed the key, or will free it in `left` milliseconds. The first waiter may try `after`
   * milliseconds from now at the earliest.
   *
   * @param released - the id of the released lease; `undefined` if an attempt gave its slot up
   */
  freed(key: string, after: number, left = 0, released?: string): void {
    const [head] = this.#queues.get(key) ?? [];
    if (head && (left > 0 || this.admits(key, head.waiter.mode)))
      this.#wake(key, Math.max(after, left), released);
  }

  /** Records that a lock has ended that this node does not store: the first waiter may get it from the other nodes. */
  freedElsewhere(key: string, after: number, released: string): void {
    this.#wake(key, after, released);
  }

  /**
   * `true` if the caller delays no earlier waiter: all of them can hold the key together, and there is room for all.
   */
  #mayPass(key: string, mode: LockMode, room: number, position: QueuePosition | undefined): boolean {
    const queue = this.#queues.get(key) ?? [];
    if (queue[0]?.waiter === position?.waiter) return true;
    const came = position ? performance.now() - position.waited : Infinity;
    const inFront = queue.filter(({ waiter, arrived }) => waiter !== position?.waiter && arrived <= came);
    return inFront.length < room && inFront.every(({ waiter }) => canHoldTogether(waiter.mode, mode));
  }

  /** Sends a message to the first waiter, unless this waiter has just got a message. */
  #wakeNext(key: string): void {
    const turn = this.#turns.get(key);
    const [head] = this.#queues.get(key) ?? [];
    const isTold = turn && turn.waiter === head?.waiter && remainingOf(turn) > 0;
    if (!isTold) this.freed(key, 0);
  }

  /**
   * Tells the first waiter when it may try. If it is a reader, tells all readers directly behind it the same. Otherwise
   * tells the next two to try a little later, in case the first waiter does not react.
   */
  #wake(key: string, after: number, released?: string): void {
    const [head, ...others] = this.#queues.get(key) ?? [];
    if (!head) return;
    this.#turns.set(key, { waiter: head.waiter, began: now(), ttl: after + TURN_MS });
    this.#tell(head, after, released);
    if (head.waiter.mode !== 'shared') {
      for (const standby of others.slice(0, STANDBYS)) this.#tell(standby, after + STANDBY_MS, released);
      return;
    }
    for (const other of others) {
      if (other.waiter.mode !== 'shared') return;
      this.#tell(other, after, released);
    }
  }

  #tell({ waiter }: Waiting, after: number, released: string | undefined): void {
    this.#listeners.get(waiter)?.(after, after === 0, released);
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

/** `true` for an entry that an earlier call of the caller's process has left in the queue. */
function isOfEarlierCall({ waiter, arrived }: Waiting, position: QueuePosition): boolean {
  return waiter === position.waiter && newEntry(position).arrived > arrived + SAME_CALL_MS;
}

function newEntry({ waiter, waited }: QueuePosition): Waiting {
  return { waiter, arrived: performance.now() - waited };
}
