/**
 * Makes a Promise of an async iterable readable with `for await`, as if it were the iterable itself.
 *
 * The caller of a locked method always gets a Promise first: the method runs only when it has its lock, and only its
 * result shows that the method returns an async iterable.
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
