import type { EntryPoint } from './sql-function.js';

/**
 * Removes a waiter that has given up: it leaves the queues of its keys. Begins the turn of the next waiter if the key
 * is free.
 */
export const LEAVE: EntryPoint = {
  signature: 'leave(keys text[], who text)',
  returns: 'void',
  body: `
begin
  perform 1 from locks l where l.key = any (keys) order by l.key for update;
  perform quit(who, keys, clock_timestamp());
end`,
};
