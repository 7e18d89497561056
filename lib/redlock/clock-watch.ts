import { neutrally } from '../core/neutral.js';
import type { Store } from '../core/ports.js';
import { quorumOf } from './quorum.js';

/** Milliseconds between two looks at the clocks, so that a suspend is told within half a second of waking (S29). */
const LOOK_EVERY_MS = 250;

/** Smaller differences between the progress of the two clocks are not worth a check of every held lock. */
const JUMP_MS = 20;

/**
 * A server's clock that gains less than this is not taken for a pause, because the estimate of that clock also gains
 * when replies become quicker.
 */
const PAUSE_MS = 100;

/**
 * Milliseconds for which the gain of one server waits for the gains of others. A gain that no quorum shares comes from
 * a clock that was set. Also the time after which a server's clock that was set back is compared with its new time.
 */
const COMPARED_FOR_MS = 60_000;

/** Told about the clocks, for all held locks. */
export interface ClockListener {
  /** Called after the wall clock was set back: the validity must not last longer by it. */
  setBack(): void;
  /**
   * Called when more time has passed than timers know.
   *
   * @param asleep - milliseconds for which the monotonic clock stood still, or by which the wall clock was set forward
   * @param paused - milliseconds for which both clocks stood still
   */
  overslept(asleep: number, paused: number): void;
}

/** The largest recent difference of a server's clock to the monotonic clock. */
interface ServerGap {
  readonly gap: number;
  /** The moment at which the server's clock had this difference, by the monotonic clock. */
  readonly at: number;
  /** The moment at which the clock was first seen to gain on this difference. */
  gainedAt?: number;
}

/**
 * Compares the clocks while locks are held (S29). The wall clock shows a suspend of the machine, for which the monotonic
 * clock and all timers stand still. The clocks of the servers show a pause of a virtual machine, for which both clocks
 * stand still: the server's time in a reply is then ahead.
 *
 * One look costs the same for any number of locks. Locks are checked only after a jump.
 */
export class ClockWatch {
  #timer: NodeJS.Timeout | undefined;
  /** The difference between the clocks (wall - monotonic) at the last jump. */
  #skew = 0;
  readonly #gaps: (ServerGap | undefined)[] = [];

  constructor(
    private readonly stores: readonly Store[],
    private readonly listener: ClockListener,
  ) {}

  /** Begins to compare the clocks; called when the first lock is held. */
  begin(): void {
    const time = performance.now();
    this.#skew = Date.now() - time;
    this.#gaps.length = 0;
    for (let node = 0; node < this.stores.length; node++) this.#compareFrom(node, time);
    // The timer looks for all locks (S30).
    neutrally(this.#lookLater);
  }

  /** Stops to compare the clocks; called when no lock is held any more. */
  end(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * Looks at the clocks now. Called with every confirmed request, before its lock counts a new validity: a pause before
   * the reply shortens only what was confirmed before.
   */
  look(): void {
    if (this.#timer) this.#look();
  }

  readonly #lookLater = (): void => {
    this.#timer = setTimeout(() => {
      this.#lookLater();
      this.#look();
    }, LOOK_EVERY_MS).unref();
  };

  #look(): void {
    const time = performance.now();
    const ahead = Date.now() - time - this.#skew;
    if (Math.abs(ahead) > JUMP_MS) this.#skew += ahead;
    const asleep = ahead > JUMP_MS ? ahead : 0;
    // A server will show the same time again, which must not count twice.
    if (asleep > 0) {
      for (const [node, each] of this.#gaps.entries())
        this.#gaps[node] = each && { ...each, gap: each.gap + asleep };
    }
    const paused = this.#paused(time);
    if (ahead < -JUMP_MS) this.listener.setBack();
    if (asleep > 0 || paused > 0) this.listener.overslept(asleep, paused);
  }

  /** The milliseconds by which the clocks of a quorum of servers have gained on both clocks of this process. */
  #paused(time: number): number {
    const { length } = this.stores;
    const quorum = quorumOf(length);
    let gaining = 0;
    for (let node = 0; node < length; node++) if (this.#gain(node, time) > 0) gaining++;
    if (gaining < quorum) return 0;
    const gains = this.stores.map((_, node) => this.#gain(node, time));
    for (const [node, gain] of gains.entries()) if (gain > 0) this.#compareFrom(node, time);
    return gains.sort((a, b) => b - a)[quorum - 1] ?? 0;
  }

  /** The milliseconds by which a server's clock has gained; 0 for less than {@link PAUSE_MS}. */
  #gain(node: number, time: number): number {
    const gap = this.#gap(node, time);
    const before = this.#gaps[node];
    if (gap === undefined || !before) {
      this.#compareFrom(node, time);
      return 0;
    }
    const gain = gap - before.gap;
    if (gain > PAUSE_MS) {
      before.gainedAt ??= time;
      if (time - before.gainedAt <= COMPARED_FOR_MS) return gain;
      this.#compareFrom(node, time);
    } else if (gain > 0 || time - before.at > COMPARED_FOR_MS) this.#compareFrom(node, time);
    return 0;
  }

  /** The difference of a server's clock; `undefined` on a new connection, which may lead to another server. */
  #gap(node: number, time: number): number | undefined {
    const theirs = this.stores[node]?.time?.();
    return theirs === undefined ? undefined : theirs - time;
  }

  #compareFrom(node: number, time: number): void {
    const gap = this.#gap(node, time);
    this.#gaps[node] = gap === undefined ? undefined : { gap, at: time };
  }
}
