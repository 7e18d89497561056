import type { StoreTerms } from '../core/store-factory.js';
import type { Target } from './target.js';

/** The settings of a store that only looks at locks. */
export function lookingTerms({ keyPrefix }: Target): StoreTerms {
  return {
    keyPrefix,
    // `doctor` prints these warnings.
    warnOnce: () => undefined,
    lost: () => undefined,
    ready: () => undefined,
    looksOnly: true,
  };
}
