import { channel } from 'node:diagnostics_channel';

/**
 * Event for a method or task that runs a tick of its schedule (`oncePerTick`). The board (`nestjs-redlock/board`) counts these
 * events even while it does not subscribe to events of locks.
 */
export interface TickRanEvent {
  /** The names of the class and of the method; absent for a call of `LockService.oncePerTick`. */
  readonly method?: string;
  /** The `name` of the `RedlockModule`; absent for the module without a name. */
  readonly instance?: string;
  readonly keys: readonly string[];
  /** The tick, in milliseconds since 1970; 0 for an interval. */
  readonly tick: number;
}

export const TICK_RAN_CHANNEL = 'nestjs-redlock:tick-ran';

/** Publishing costs almost no time without subscribers. */
export const ranTicks = channel(TICK_RAN_CHANNEL);
