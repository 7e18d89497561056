import { AsyncResource } from 'node:async_hooks';

/** Keeps the asynchronous context in which the package was loaded: the context of no call. */
const origin = new AsyncResource('nestjs-redlock');

/**
 * Runs `task` outside of the asynchronous context of the running call (S30). Timers, sockets, Promises and listeners
 * keep the context in which they were made. A timer that serves several callers must therefore be made here: otherwise
 * it would run in a stranger's context, and would keep the data of a stranger's request in memory.
 */
export function neutrally<Args extends readonly unknown[], T>(task: (...args: Args) => T, ...args: Args): T {
  return origin.runInAsyncScope(task, undefined, ...args);
}

/** Makes a function that runs `task` as {@link neutrally} does. */
export function neutral<Args extends readonly unknown[], T>(
  task: (...args: Args) => T,
): (...args: Args) => T {
  return (...args) => neutrally(task, ...args);
}

/**
 * Runs code of the application, such as a subscriber of a channel, as {@link neutrally} does. A store that this code
 * sets with `enterWith` ends with it. (In Node 20 `enterWith` changes the resource, and all neutral tasks share one.)
 */
export function tellNeutrally(task: () => void): void {
  neutrally(tellApart, task);
}

function tellApart(task: () => void): void {
  new AsyncResource('nestjs-redlock').runInAsyncScope(task);
}

/**
 * Makes a Promise of the result of `begin` that does not keep the asynchronous context of the running call in memory.
 * In Node 20 a Promise keeps it for as long as the application keeps the Promise, also after it has settled.
 */
export function detached<T>(begin: () => Promise<T>): Promise<T> {
  const { promise, resolve, reject } = neutrally(deferred<T>);
  begin().then(resolve, reject);
  return promise;
}

interface Deferred<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: unknown) => void;
}

function deferred<T>(): Deferred<T> {
  const made = {} as Deferred<T>;
  made.promise = new Promise<T>((resolve, reject) => {
    made.resolve = resolve;
    made.reject = reject;
  });
  return made;
}
