import type { StrategyName } from '../strategies/strategy-names.js';

/** How an instance dispatches. The lab changes it while the instance runs. */
export class InstanceSettings {
  /** Whether the timer does anything. */
  active = false;

  constructor(
    public strategy: StrategyName,
    /** Milliseconds between reading and marking. */
    public work: number,
    /** Milliseconds between two turns of the dispatcher. */
    readonly every: number,
    /** Whether it does not dispatch, but writes once, and must be alone then. */
    readonly writes: boolean,
  ) {}
}
