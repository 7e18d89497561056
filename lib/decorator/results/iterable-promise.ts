/**
 * Makes a Promise of an async iterable readable with `for await`, as if it were the iterable itself.
 *
 * The caller of a locked method always gets a Promise first: the method runs only under its lock, and only the result
 * of the method shows that it is an async iterable.
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
