/**
 * The real one, also where a test puts fake timers in place later. To import it takes 2 ms: for the sake of all that
 * `node:process` exports, Node would set up stdin and read the list of its own options.
 */
export const { nextTick } = process;
