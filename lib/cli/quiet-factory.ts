import type { StoreFactory } from '../core/store-factory.js';
import { UsageError } from './usage-error.js';

/**
 * Makes a factory whose errors do not show the URL of the store, because it may hold a password.
 *
 * @param refusal - the message of an error that has no message for users
 */
export function quietFactory(make: () => StoreFactory, refusal: string): StoreFactory {
  return {
    openStore(terms) {
      try {
        return make().openStore(terms);
      } catch (error) {
        throw error instanceof UsageError ? error : new UsageError(refusal);
      }
    },
  };
}
