/**
 * Lets a Promise of an async iterable be read as if it were one.
 *
 * A method that returns an async iterable and is no generator cannot be told from one that returns a Promise before it has
 * run. It runs only when it has its lock.
 */
export function iterablePromise(promise: Promise<unknown>): Promise<unknown> {
  const iterate = (): AsyncIterator<unknown> => {
    const iterator = promise.then((value) => (value as AsyncIterable<unknown>)[Symbol.asyncIterator]());
    return {
      next: async (...sent) => (await iterator).next(...sent),
      return: async (value) => (await (await iterator).return?.(value)) ?? { done: true, value },
    };
  };
  return Object.defineProperty(promise, Symbol.asyncIterator, { value: iterate });
}
