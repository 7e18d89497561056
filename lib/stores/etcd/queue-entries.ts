import type { QueuePosition } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { entryName, waiterName } from './names.js';

/** Calls to acquire that began less than this many milliseconds apart count as the same call. */
const SAME_CALL_MS = 5;

/** A waiter's queue entry, and the start of the call that it represents. */
interface Queued {
  names: Set<string>;
  /** The time of its arrival, in milliseconds since 1970. */
  since: number;
  /** The same time by the monotonic clock. */
  came: number;
}

/**
 * The queue entry of the waiting call that takes over the position in the queue when an earlier call of the same
 * process gets its lock.
 */
export interface Next {
  readonly name: string;
  readonly queued: Queued;
}

/** The queue entries of this process's waiters. */
export class QueueEntries {
  readonly #queued = new Map<string, Queued>();

  /**
   * The name of a waiter's queue entry at a key. The name changes when another call of the same process asks.
   *
   * @param came - time at which the call arrived, by the monotonic clock
   */
  nameFor(key: string, waiter: WaiterId, came: number): string {
    return entryName(key, this.#of(waiter, came).since, waiter);
  }

  #of(waiter: WaiterId, came: number): Queued {
    const name = waiterName(waiter);
    let queued = this.#queued.get(name);
    if (!queued) {
      queued = { names: new Set<string>(), since: wallTimeOf(came), came };
      this.#queued.set(name, queued);
    } else if (Math.abs(queued.came - came) > SAME_CALL_MS) {
      queued.since = wallTimeOf(came);
      queued.came = came;
    }
    return queued;
  }

  /**
   * All names under which the waiter may be in a queue. There may be several, because the answer to a request can be
   * lost.
   */
  all(waiter: WaiterId): readonly string[] {
    return [...(this.#queued.get(waiterName(waiter))?.names ?? [])];
  }

  addName(name: string, waiter: WaiterId): void {
    this.#queued.get(waiterName(waiter))?.names.add(name);
  }

  /** Records that the waiter now has only this queue entry. Returns `false` if the waiter has left the queues. */
  setName(name: string, waiter: WaiterId): boolean {
    const queued = this.#queued.get(waiterName(waiter));
    if (queued) queued.names = new Set([name]);
    return queued !== undefined;
  }

  /**
   * The queue entry for the next waiting call of the same process, which takes over the position when the present call
   * gets its lock.
   */
  nextAt(key: string, { waiter, next }: QueuePosition): Next | undefined {
    if (next === undefined) return undefined;
    const came = performance.now() - next;
    const since = wallTimeOf(came);
    const name = entryName(key, since, waiter);
    return { name, queued: { names: new Set([name]), since, came } };
  }

  /**
   * Records that the waiter got its lock, and that the next call, if there is one, has taken over the position in the
   * queue.
   */
  granted(waiter: WaiterId, next: Next | undefined): void {
    if (next) this.#queued.set(waiterName(waiter), next.queued);
    else this.forget(waiter);
  }

  forget(waiter: WaiterId): void {
    this.#queued.delete(waiterName(waiter));
  }
}

/**
 * The wall clock's time at a moment of the monotonic clock. Waiters of all processes are in the order of this time: etcd
 * does not report its own clock, and revisions say nothing about a process that has sent no request for a while.
 */
function wallTimeOf(moment: number): number {
  return Date.now() - (performance.now() - moment);
}
