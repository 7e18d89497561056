import { isPromise } from 'node:util/types';

/**
 * Returns a result that `await` can take without side effects: calls the `then` of a thenable now, in the running
 * asynchronous context, and only here. Query builders (knex, mongoose) begin their work in `then`, in the context of its
 * caller, and once for each call.
 */
export function begun<T>(result: T | PromiseLike<T>): T | Promise<T> {
  // `await` does not call the `then` of a plain Promise. `isPromise` runs no code of the result, in contrast to
  // `instanceof`.
  if (isPromise(result) && result.constructor === Promise) return result as Promise<T>;
  if (Object(result) !== result) return result as T;
  const { then } = result as { readonly then?: unknown };
  if (typeof then !== 'function') return result as T;
  return new Promise<T>((resolve, reject) => void Reflect.apply(then, result, [resolve, reject]));
}
