/** One firing of a schedule that several processes share. Nodes remember it, so that each tick runs once. */
export interface Tick {
  /** Tells the ticks of one schedule from those of other schedules with the same key. */
  readonly schedule: string;

  /**
   * The time that the schedule names, in milliseconds since 1970: the same number in every process, whatever its clock
   * says. A node that remembers this or a later tick refuses. 0 for a schedule without such times; a node then refuses
   * for as long as it remembers the tick.
   */
  readonly at: number;

  /** Milliseconds for which nodes remember that the tick has run, counted from the acquisition or from the release. */
  readonly life: number;
  readonly from: 'acquisition' | 'release';
}

/** The record of a completed tick, as nodes are asked to store it. */
export interface TickMark {
  readonly schedule: string;
  readonly at: number;
  /** Milliseconds, counted from now. */
  readonly life: number;
}
