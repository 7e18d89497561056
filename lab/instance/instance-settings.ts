import type { StrategyName } from '../strategies/strategy-names.js';

/** Settings of an instance's dispatching. The lab changes them while the instance runs. */
export class InstanceSettings {
  /** True if the timer is active. */
  active = false;

  constructor(
    public strategy: StrategyName,
    /** Milliseconds of work after tasks are read and before they are marked as enqueued. */
    public work: number,
    /** Milliseconds between two turns of the dispatcher. */
    readonly every: number,
    /** True if the instance writes once under an exclusive lock, and does not dispatch. */
    readonly writes: boolean,
    /** True if the work of the instance blocks its event loop. */
    readonly blocks: boolean,
  ) {}
}
