import type { StoreTerms } from '../../core/store-factory.js';

const nobody = (): void => undefined;

/** The terms of a store of the thread, which has no waiters. The store of the other thread has prepared the server. */
export const LOOKS_ONLY: Pick<StoreTerms, 'lost' | 'ready' | 'looksOnly'> = {
  lost: nobody,
  ready: nobody,
  looksOnly: true,
};
