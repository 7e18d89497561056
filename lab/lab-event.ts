import type { LockStore } from '../sample-app/config/environment.js';
import type { JournalEntry } from './instance/journal.js';
import type { StrategyName } from './strategies/strategy-names.js';

/** Limit of concurrent dispatchers; one by default. */
export interface Rule {
  readonly atOnce?: number;
  /** Name of the instance that must be alone, whatever `atOnce` is. */
  readonly writer?: string;
}

/** Actions and observations of the lab itself. */
export type LabEntry =
  | { readonly kind: 'started' }
  | { readonly kind: 'killed' }
  | { readonly kind: 'paused' }
  | { readonly kind: 'resumed' }
  | { readonly kind: 'node-killed' }
  /** `empty` is true if the node has lost its locks. */
  | { readonly kind: 'node-started'; readonly empty: boolean }
  | { readonly kind: 'strategy'; readonly strategy: StrategyName }
  | { readonly kind: 'settings'; readonly ttl: number; readonly work: number }
  | { readonly kind: 'submitted'; readonly tasks: number }
  | { readonly kind: 'note'; readonly text: string };

/** An event of a run. `who` is an instance, a node, or the lab. */
export type LabEvent = (JournalEntry | LabEntry) & {
  readonly at: number;
  readonly who: string;
  /** Jobs of a `pushed` event that had been pushed before. */
  readonly duplicates?: readonly string[];
};

/** Measurements of one run. */
export interface Outcome {
  readonly tasks: number;
  /** Number of jobs, counted in the queue. */
  readonly pushes: number;
  /** Number of jobs that repeat another job: the same dispatch of the same task. */
  readonly duplicates: number;
  /** Number of tasks that were not done at the end. */
  readonly lost: number;
  /** Number of tasks whose work was done more than once. */
  readonly doneTwice: number;
  /** Number of dispatches that began during a dispatch of another instance. */
  readonly overlaps: number;
  /** Number of dispatches that began although the limit was reached. */
  readonly tooMany: number;
  /** Number of times that an instance dispatched again while another instance waited for an exclusive lock. */
  readonly overtakes: number;
  /** Milliseconds that the instance with the exclusive lock has waited. */
  readonly waited?: number | undefined;
  /** Number of grants during the ttl of a lock that another holder had not released. */
  readonly grantedTwice: number;
  /** Number of writes that the database refused because of their token. */
  readonly refused: number;
  readonly skips: number;
  /** Number of attempts that failed because too few nodes voted. */
  readonly unavailable: number;
  /** Milliseconds from the first task to the last push. */
  readonly took: number;
  /**
   * Milliseconds from the fault to the next push; `never` if the key of the lock has no expiry, `undefined` without a
   * fault.
   */
  readonly recovery?: number | 'never';
}

/** Record of one run, which the page draws. */
export interface RunRecord {
  readonly id: number;
  readonly scenario: number;
  readonly title: string;
  readonly strategy: StrategyName | 'script';
  readonly ttl: number;
  readonly work: number;
  readonly instances: readonly string[];
  /** Store of the locks. */
  readonly store: LockStore;
  readonly nodes: readonly string[];
  readonly rule?: Rule | undefined;
  readonly startedAt: number;
  readonly events: LabEvent[];
  endedAt?: number;
  faultAt?: number;
  outcome?: Outcome;
  /** Sentence about the outcome, with its numbers. */
  happened?: string;
  /** Differences from the description; an empty list if there are none. */
  deviations?: readonly string[];
  /** Reason why the run did not take place. */
  notRun?: string;
}
