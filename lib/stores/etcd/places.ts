import type { QueuePosition } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { Arrivals } from './arrivals.js';
import { placeName, waiterName } from './names.js';

/** Calls that began less than this many milliseconds apart count as the same call. */
const SAME_CALL_MS = 5;

/** A waiter's queue entry, and the start of the call that it represents. */
interface Standing {
  names: Set<string>;
  order: string;
  came: number;
}

/** The queue entry of the call that takes over the position of a granted call. */
export interface Next {
  readonly name: string;
  readonly standing: Standing;
}

/** The queue entries of this process's waiters. */
export class Places {
  readonly #standing = new Map<string, Standing>();

  constructor(private readonly arrivals: Arrivals) {}

  /**
   * The name of a waiter's queue entry at a key. The name changes when another call of the same process asks.
   *
   * @param came - time at which the call arrived, by the monotonic clock
   */
  nameFor(key: string, waiter: WaiterId, came: number): string {
    return placeName(key, this.#of(waiter, came).order, waiter);
  }

  #of(waiter: WaiterId, came: number): Standing {
    const name = waiterName(waiter);
    let standing = this.#standing.get(name);
    if (!standing) {
      standing = { names: new Set<string>(), order: this.arrivals.orderOf(came), came };
      this.#standing.set(name, standing);
    } else if (Math.abs(standing.came - came) > SAME_CALL_MS) {
      standing.order = this.arrivals.orderOf(came);
      standing.came = came;
    }
    return standing;
  }

  /**
   * All names under which the waiter may be in a queue. There may be several, because the answer to a request can be
   * lost.
   */
  all(waiter: WaiterId): readonly string[] {
    return [...(this.#standing.get(waiterName(waiter))?.names ?? [])];
  }

  mayStand(name: string, waiter: WaiterId): void {
    this.#standing.get(waiterName(waiter))?.names.add(name);
  }

  /** Records the only queue entry of the waiter. */
  stands(name: string, waiter: WaiterId): void {
    const standing = this.#standing.get(waiterName(waiter));
    if (standing) standing.names = new Set([name]);
  }

  /**
   * The queue entry of the next call of the same process. That call takes over the position when this call gets its
   * lock.
   */
  nextAt(key: string, { waiter, next }: QueuePosition): Next | undefined {
    if (next === undefined) return undefined;
    const came = performance.now() - next;
    const order = this.arrivals.orderOf(came);
    const name = placeName(key, order, waiter);
    return { name, standing: { names: new Set([name]), order, came } };
  }

  /** Records that the waiter got its lock, and that the next call, if there is one, has taken over. */
  granted(waiter: WaiterId, next: Next | undefined): void {
    if (next) this.#standing.set(waiterName(waiter), next.standing);
    else this.forget(waiter);
  }

  forget(waiter: WaiterId): void {
    this.#standing.delete(waiterName(waiter));
  }
}
