import { script } from './script.js';

/**
 * Runs the commands of a lock on a key that does not exist. The server then reports an error if it refuses one of them:
 * because of missing rights, lack of memory or missing replicas. The server checks a SET with XX like any SET, but
 * writes nothing.
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
