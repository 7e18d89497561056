/**
 * The real function, also where a test installs fake timers later. An import from `node:process` takes 2 ms: for all
 * its exports Node would set up stdin and read the list of its own options.
 */
export const { nextTick } = process;
