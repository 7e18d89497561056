import type { LockStore } from '../sample-app/config/environment.js';
import type { JournalEntry } from './instance/journal.js';
import type { StrategyName } from './strategies/strategy-names.js';

/** Limit of concurrent dispatchers; one by default. */
export interface Rule {
  readonly atOnce?: number;
  /** The instance that must be alone, whatever the number is. */
  readonly writer?: string;
}

/** Actions and observations of the lab itself. */
export type LabEntry =
  | { readonly kind: 'started' }
  | { readonly kind: 'killed' }
  | { readonly kind: 'paused' }
  | { readonly kind: 'resumed' }
  | { readonly kind: 'node-killed' }
  /** `empty`: without the locks that it had. */
  | { readonly kind: 'node-started'; readonly empty: boolean }
  | { readonly kind: 'strategy'; readonly strategy: StrategyName }
  | { readonly kind: 'settings'; readonly ttl: number; readonly work: number }
  | { readonly kind: 'submitted'; readonly tasks: number }
  /** An instance begins to ask for the lock, and goes on until it is its turn. */
  | { readonly kind: 'asking' }
  | { readonly kind: 'note'; readonly text: string };

/** A point of a run in the picture. `who` is an instance, a node, or the lab. */
export type LabEvent = (JournalEntry | LabEntry) & {
  readonly at: number;
  readonly who: string;
  /** The jobs that had been pushed before; only with `pushed`. */
  readonly duplicates?: readonly string[];
};

/** Measurements of one run. */
export interface Outcome {
  readonly tasks: number;
  /** Jobs in the queue, counted there. */
  readonly pushes: number;
  /** Jobs that are there for the second time: the same dispatch of the same task. */
  readonly duplicates: number;
  /** Tasks that were not done at the end. */
  readonly lost: number;
  /** Tasks whose work was done more than once. */
  readonly doneTwice: number;
  /** Number of dispatches that began during another one's. */
  readonly overlaps: number;
  /** Number of dispatches that began above the limit. */
  readonly tooMany: number;
  /** Number of times that an instance acquired again before one that was already waiting. */
  readonly overtakes: number;
  /** Milliseconds that the one has waited that has to be alone. */
  readonly waited?: number | undefined;
  /** Number of grants while another holder's lock had neither ended nor been released by it. */
  readonly grantedTwice: number;
  /** Writes that the database refused by their token. */
  readonly refused: number;
  readonly skips: number;
  /** Attempts that failed because too few nodes voted. */
  readonly unavailable: number;
  /** Milliseconds from the first task to the last push. */
  readonly took: number;
  /** Milliseconds from the fault to the next push; `never` when the lock's key has no expiry, `undefined` without a fault. */
  readonly recovery?: number | 'never';
}

/** Everything about one run; the page draws it. */
export interface RunRecord {
  readonly id: number;
  readonly scenario: number;
  readonly title: string;
  readonly strategy: StrategyName | 'script';
  readonly ttl: number;
  readonly work: number;
  readonly instances: readonly string[];
  /** Location of the locks. */
  readonly store: LockStore;
  readonly nodes: readonly string[];
  readonly rule?: Rule | undefined;
  readonly startedAt: number;
  readonly events: LabEvent[];
  endedAt?: number;
  faultAt?: number;
  outcome?: Outcome;
  /** A sentence with the numbers. */
  happened?: string;
  /** Differences from the description. Empty without any. */
  deviations?: readonly string[];
  /** The reason why the scenario was not run. */
  notRun?: string;
}
