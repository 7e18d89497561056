/**
 * One moment at which a schedule runs its method. Several processes have the same schedule. Nodes remember the tick, so
 * that only one process runs the method for this tick.
 */
export interface Tick {
  /** Name of the schedule. It distinguishes schedules that lock the same key. */
  readonly schedule: string;

  /**
   * Planned time of the tick, in milliseconds since 1970. It comes from the cron expression, so every process computes
   * the same number, even with a wrong clock. A node that remembers this tick or a later one refuses the lock.
   *
   * 0 for an `@Interval`, which has no planned times. A node then refuses the lock as long as it remembers any tick of
   * the schedule.
   */
  readonly at: number;

  /** Milliseconds for which nodes remember that the tick has run. `from` is the event from which this time counts. */
  readonly life: number;
  readonly from: 'acquisition' | 'release';
}

/** The record of a completed tick, in the form that the client asks nodes to store. */
export interface TickMark {
  readonly schedule: string;
  readonly at: number;
  /** Milliseconds from now for which nodes remember the tick. */
  readonly life: number;
}
