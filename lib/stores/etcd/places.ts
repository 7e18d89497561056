import type { QueuePosition } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { Arrivals } from './arrivals.js';
import { placeName, waiterName } from './names.js';

/** How far apart two calls have come at least, in milliseconds, that are not taken for the same one. */
const SAME_CALL_MS = 5;

/** Where one who waits stands, and since when the call has waited that it stands for. */
interface Standing {
  names: Set<string>;
  order: string;
  came: number;
}

/** The place of the call that takes over. */
export interface Next {
  readonly name: string;
  readonly standing: Standing;
}

/** The places in line of those of this process who wait. */
export class Places {
  readonly #standing = new Map<string, Standing>();

  constructor(private readonly arrivals: Arrivals) {}

  /**
   * How the place of one who asks is called at a key; a new name when another call of the process asks.
   *
   * @param came - when that call came, by the monotonic clock
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

  /** Where the waiter may stand; the answer to what put it there may have been lost. */
  all(waiter: WaiterId): readonly string[] {
    return [...(this.#standing.get(waiterName(waiter))?.names ?? [])];
  }

  mayStand(name: string, waiter: WaiterId): void {
    this.#standing.get(waiterName(waiter))?.names.add(name);
  }

  /** It stands there, and nowhere else. */
  stands(name: string, waiter: WaiterId): void {
    const standing = this.#standing.get(waiterName(waiter));
    if (standing) standing.names = new Set([name]);
  }

  /** The place of the call of the same process that takes over when this one is granted. */
  nextAt(key: string, { waiter, next }: QueuePosition): Next | undefined {
    if (next === undefined) return undefined;
    const came = performance.now() - next;
    const order = this.arrivals.orderOf(came);
    const name = placeName(key, order, waiter);
    return { name, standing: { names: new Set([name]), order, came } };
  }

  /** The waiter was granted, and the next call has taken over, if there is one. */
  granted(waiter: WaiterId, next: Next | undefined): void {
    if (next) this.#standing.set(waiterName(waiter), next.standing);
    else this.forget(waiter);
  }

  forget(waiter: WaiterId): void {
    this.#standing.delete(waiterName(waiter));
  }
}
