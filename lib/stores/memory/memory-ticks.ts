import { now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import type { Holder } from '../../core/ports.js';
import { type Life, remainingOf } from './memory-life.js';

/** A tick that has run, and the time for which it is remembered. */
interface Ran extends Life {
  readonly at: number;
  readonly owner: string;
}

/** For each schedule, the last tick that has run. */
export class MemoryTicks {
  /** Ticks by the first key and the schedule. */
  readonly #ticks = new Map<string, Ran>();

  /** The process that ran the tick of the lease or a later tick, while that tick is remembered. */
  ranBy({ keys, tick }: Lease): Holder | undefined {
    if (!tick) return undefined;
    const last = this.#ticks.get(tickName(keys, tick.schedule));
    const remaining = last ? remainingOf(last) : 0;
    if (!last || remaining <= 0 || last.at < tick.at) return undefined;
    return { id: `${last.at}:${last.owner}`, owner: last.owner, remaining };
  }

  remember({ keys, owner, mark }: Lease): void {
    if (!mark) return;
    const name = tickName(keys, mark.schedule);
    const last = this.#ticks.get(name);
    if (last && remainingOf(last) > 0 && last.at > mark.at) return;
    this.#ticks.set(name, { at: mark.at, owner, began: now(), ttl: mark.life });
  }

  sweep(): void {
    for (const [name, ran] of this.#ticks) if (remainingOf(ran) <= 0) this.#ticks.delete(name);
  }

  clear(): void {
    this.#ticks.clear();
  }
}

function tickName(keys: readonly string[], schedule: string): string {
  return JSON.stringify([keys[0], schedule]);
}
