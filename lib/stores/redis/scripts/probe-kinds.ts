import { script } from './script.js';

/**
 * Runs each command that only shared locks and permits need, on a key that does not exist. Returns the commands that
 * the user may not run. The script stores nothing. It does not report other errors, such as a lack of memory.
 *
 * KEYS     a key that never exists
 * Returns  the names of those commands
 */
export const PROBE_KINDS = script(`
local denied = {}
for _, words in ipairs({
  {'zadd', 'XX', 0, '-'}, {'zscore', '-'}, {'zrangebyscore', 0, 0}, {'zcard'}, {'hget', '-'}, {'hset', '-', '-'},
  {'hsetnx', '-', '-'}, {'hdel', '-'}, {'hmget', '-'}, {'hlen'}, {'pexpireat', 1}, {'setrange', 0, ''}
}) do
  local reply = redis.pcall(words[1], KEYS[1], unpack(words, 2))
  if type(reply) == 'table' and reply.err and
    (string.find(reply.err, 'NOPERM', 1, true) or string.find(reply.err, 'ACL failure', 1, true)
      or string.find(reply.err, 'user executing the script', 1, true)) then
    denied[#denied + 1] = words[1]
  end
end
redis.call('DEL', KEYS[1])
return denied
`);

/** Advice about the commands that the user may not run; `undefined` when the user may run all. */
export function adviceOnKinds(denied: unknown): string | undefined {
  const names = (denied as readonly unknown[]).map(String);
  if (names.length === 0) return undefined;
  const [which, rights] = [names.join(', ').toUpperCase(), names.map((name) => `+${name}`).join(' ')];
  return (
    `its user may not run ${which}, so locks with \`mode: 'shared'\` or \`permits\` fail, and waiters get no message ` +
    `when it is their turn; allow these commands with ACL SETUSER <user> ${rights}`
  );
}
