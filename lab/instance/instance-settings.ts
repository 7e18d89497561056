import type { StrategyName } from '../strategies/strategy-names.js';

/** Settings of an instance's dispatching. The lab changes them while the instance runs. */
export class InstanceSettings {
  /** True if the timer is active. */
  active = false;

  constructor(
    public strategy: StrategyName,
    /** Milliseconds between reading and marking. */
    public work: number,
    /** Milliseconds between two turns of the dispatcher. */
    readonly every: number,
    /** True if it writes once in place of dispatching, under an exclusive lock. */
    readonly writes: boolean,
  ) {}
}
