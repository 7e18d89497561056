import { RECORD } from '../record.js';

/**
 * Lua text for the last token in the string `record`. This Lua text yields nil or false if the string is not the record
 * of a lock (S19). The colon after the token distinguishes a record from a long number.
 */
export function tokenOf(record: string): string {
  return (
    `#${record} >= ${RECORD.shortest} and string.byte(${record}, ${RECORD.token[1] + 1}) == 58 ` +
    `and tonumber(string.sub(${record}, ${RECORD.token.join(', ')}))`
  );
}

/**
 * Lua text for a token in 16 digits.
 *
 * Formatting the token in two halves takes 0.3 us, and `%016.0f` takes 0.6 us (commandstats of a script that does
 * nothing else). A single `%016d` accepts only 32 bits on some servers.
 */
export function digitsOf(token: string): string {
  return `string.format('%08d%08d', math.floor(${token} / 100000000), ${token} % 100000000)`;
}

const FOREIGN_VALUE = 'has a value that is not a lock of this package';

/** Lua text for the answer about a key with a foreign value (S19). */
export const FOREIGN = `redis.error_reply('ERR the key ${FOREIGN_VALUE}')`;

/** Lua text that ends a script when the local `mark`, the value of the node's marker, is foreign (S19). */
export const REFUSE_FOREIGN_MARK = `
if mark and not string.find(mark, '^%d+:%d+$') then
  return redis.error_reply('ERR the marker of the node (redlock-node, after the prefix of the keys) ${FOREIGN_VALUE}')
end
`;

/** Lua text that ends a script when the local `known`, the value of the node's identity key, is foreign (S19). */
export const REFUSE_FOREIGN_IDENTITY = `
if known and not string.find(known, '^%d+:%d+:[-%a]:') then
  return redis.error_reply('ERR the identity of the node (redlock-server, after the prefix of the keys) ${FOREIGN_VALUE}')
end
`;

/** `true` if a server refused a request because a key has a foreign value. */
export function isForeign({ message }: Error): boolean {
  return message.startsWith('WRONGTYPE') || message.includes(FOREIGN_VALUE);
}

/**
 * Lua text that makes an error in the local `answer` begin with the error code: before Redis 7 an error that a script
 * caught begins with a position in the script.
 */
export const CODE_FIRST = `
local text = string.match(answer.err, '^@user_script: %d+: %-(.*)')
if text then
  answer = redis.error_reply(text)
end
`;
