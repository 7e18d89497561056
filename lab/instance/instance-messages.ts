import type { JournalEvent } from './journal.js';
import type { StrategyName } from '../strategies/strategy-names.js';

/** Messages from the lab to a process that runs instances. */
export type ToInstance =
  | {
      readonly to: 'open';
      readonly environment: Readonly<Record<string, string>>;
      readonly strategy: StrategyName;
      readonly work: number;
      readonly every: number;
      readonly writes: boolean;
      readonly blocks: boolean;
    }
  | {
      readonly to: 'set';
      readonly strategy?: StrategyName;
      readonly work?: number;
      readonly active?: boolean;
    }
  | { readonly to: 'close' };

/** Messages from the process to the lab. */
export type FromInstance =
  | { readonly kind: 'booted' }
  | { readonly kind: 'opened'; readonly url: string }
  | { readonly kind: 'closed' }
  | { readonly kind: 'broken'; readonly message: string }
  | JournalEvent;
