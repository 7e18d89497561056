/**
 * One firing of a schedule that several processes share, so that it can be told whether it has run already.
 */
export interface Tick {
  /** Tells the ticks of one schedule from those of others that lock the same key. */
  readonly schedule: string;

  /**
   * The instant that the schedule names, in milliseconds since 1970: the same number in every process, whatever its
   * clock says. A node that remembers this or a later one refuses. 0 when a schedule names no instants; then a node
   * refuses for as long as it remembers.
   */
  readonly at: number;

  /** Milliseconds for which nodes remember that the tick has run, counted from the acquisition or from the release. */
  readonly life: number;
  readonly from: 'acquisition' | 'release';
}

/** What a node is asked to remember of a tick that has run. */
export interface TickMark {
  readonly schedule: string;
  readonly at: number;
  /** Milliseconds, counted from now. */
  readonly life: number;
}
