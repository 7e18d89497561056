/**
 * The real `process.nextTick`, even if a test installs fake timers later. An import from `node:process` would take 2
 * ms: Node computes all exports of that module, such as stdin and its list of allowed options.
 */
export const { nextTick } = process;
