import type { LockStore } from '../sample-app/config/environment.js';
import type { JournalEntry } from './instance/journal.js';
import type { StrategyName } from './strategies/strategy-names.js';

/** Who may dispatch at the same time; one by default. */
export interface Rule {
  readonly atOnce?: number;
  /** The instance that must be alone, whatever the number is. */
  readonly writer?: string;
}

/** What the lab itself does and sees. */
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

/** One point of a run, as it is drawn. `who` is an instance, a node, or the lab. */
export type LabEvent = (JournalEntry | LabEntry) & {
  readonly at: number;
  readonly who: string;
  /** With `pushed`: which of the jobs had been pushed before. */
  readonly duplicates?: readonly string[];
};

/** What was measured in one run. */
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
  /** How often an instance began to dispatch while another one was dispatching. */
  readonly overlaps: number;
  /** How often an instance began to dispatch when as many did as may. */
  readonly tooMany: number;
  /** How often an instance came in again before another one that had been waiting since before. */
  readonly overtakes: number;
  /** Milliseconds that the one has waited that has to be alone. */
  readonly waited?: number | undefined;
  /** How often a lock was granted while that of another holder had neither ended nor been given back by it. */
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
  /** Where the locks are. */
  readonly store: LockStore;
  readonly nodes: readonly string[];
  readonly rule?: Rule | undefined;
  readonly startedAt: number;
  readonly events: LabEvent[];
  endedAt?: number;
  faultAt?: number;
  outcome?: Outcome;
  /** One sentence with the numbers. */
  happened?: string;
  /** Where it did not come out as described. Empty when it did. */
  deviations?: readonly string[];
  /** Why it was not run. */
  notRun?: string;
}
