import { asError } from './errors.js';

/** Calls a method of a store. Rejects when the method throws: a store of the application may throw where it should reject. */
export function askStore<Reply, Node>(ask: (store: Node) => Reply, store: Node): Reply | Promise<never> {
  try {
    return ask(store);
  } catch (error) {
    return Promise.reject(asError(error));
  }
}
