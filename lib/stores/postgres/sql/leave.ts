import type { EntryPoint } from './sql-function.js';

/** A waiter gives up: it is taken out of the queues, and its turn passed on where the key is free. */
export const LEAVE: EntryPoint = {
  signature: 'leave(keys text[], who text)',
  returns: 'void',
  body: `
begin
  perform 1 from locks l where l.key = any (keys) order by l.key for update;
  perform quit(who, keys, clock_timestamp());
end`,
};
