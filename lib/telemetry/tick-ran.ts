import { channel } from 'node:diagnostics_channel';

/** A call that runs for its tick (`oncePerTick`). For the board, which counts ticks though it listens to no locks. */
export interface TickRanEvent {
  /** The class and the method. */
  readonly method: string;
  /** The `name` of the `RedlockModule`; not for the one without a name. */
  readonly instance?: string;
  readonly keys: readonly string[];
  /** In milliseconds since 1970; 0 for an `@Interval`. */
  readonly tick: number;
}

export const TICK_RAN_CHANNEL = 'nestjs-redlock:tick-ran';

/** Costs next to nothing while nobody subscribes. */
export const ranTicks = channel(TICK_RAN_CHANNEL);
