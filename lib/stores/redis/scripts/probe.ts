import { script } from './script.js';

/**
 * Runs the commands of a lock on a key that does not exist, to get the error of a server that refuses one of them: a
 * user without the right, lack of memory, missing replicas. SET with XX passes the checks of the server and writes
 * nothing.
 *
 * KEYS     a key that is never written
 */
export const PROBE = script(`
redis.call('TIME')
redis.call('SET', KEYS[1], '', 'XX', 'PX', 1)
for _, command in ipairs({'GET', 'PTTL', 'DEL'}) do
  redis.call(command, KEYS[1])
end
redis.call('PEXPIRE', KEYS[1], 1)
redis.call('SETRANGE', KEYS[1], 0, '')
redis.call('ZRANGE', KEYS[1], 0, 0)
redis.call('ZREM', KEYS[1], '')
return 1
`);
