import { MARK, RECORD, TICK } from '../record.js';
import { Fragment, localsOf } from './fragment.js';

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

/** The error of a key with a foreign value. */
export const FOREIGN_KEY = `the key ${FOREIGN_VALUE}`;

/** Lua text for the answer about a key with a foreign value (S19). */
export const FOREIGN = `redis.error_reply('ERR ${FOREIGN_KEY}')`;

/** Lua text that ends a script when the local `written`, the value of the node's marker, is foreign (S19). */
export const REFUSE_FOREIGN_MARKER = new Fragment(
  { needs: ['written'] },
  `
if written and not string.find(written, '^%d+:%d+$') then
  return redis.error_reply('ERR the marker of the node (redlock-node, after the prefix of the keys) ${FOREIGN_VALUE}')
end
`,
);

/** Lua text that ends a script when the local `known`, the value of the node's identity key, is foreign (S19). */
export const REFUSE_FOREIGN_IDENTITY = new Fragment(
  { needs: ['known'] },
  `
if known and not string.find(known, '^%d+:%d+:[-%a]:') then
  return redis.error_reply('ERR the identity of the node (redlock-server, after the prefix of the keys) ${FOREIGN_VALUE}')
end
`,
);

/** Lua text that is true if a local, the value of a waiter's mark, is foreign (S19). */
export const isForeignMark = (mark: string): string =>
  `(#${mark} < ${MARK.shortest} or string.byte(${mark}, ${MARK.name - 1}) ~= 58)`;

/** Lua text that is true if a local, the value of the last tick that ran, is foreign (S19). */
export const isForeignTick = (last: string): string =>
  `(string.byte(${last}, ${TICK.at[1] + 1}) ~= 58 or not tonumber(string.sub(${last}, ${TICK.at.join(', ')})))`;

/** `true` if a server refused a request because a key has a foreign value. */
export function isForeign({ message }: Error): boolean {
  return message.startsWith('WRONGTYPE') || message.includes(FOREIGN_VALUE);
}

/**
 * Lua text about an error in the local `answer`. Makes it begin with the error code: before Redis 7 an error that a
 * script caught begins with a position in the script. Returns READONLY as the reply to the whole command: clients look
 * for it there (`reconnectOnError`).
 */
export const TELL_ERROR = new Fragment(
  { needs: ['answer'], sets: ['text'] },
  `
local text = string.match(answer.err, '^@user_script: %d+: %-(.*)')
if text then
  answer = redis.error_reply(text)
end
if string.sub(answer.err, 1, 8) == 'READONLY' then
  return answer
end
`,
);

/**
 * Lua text that stores a value with a new expiry, even if memory is short: then PEXPIRE runs first, because after the
 * first write of a script no other write fails because of memory (S9). PEXPIRE alone is not enough: a clock that is set
 * back would make a released record held again, for the time by which the clock was set back. Sets the local `stored`
 * to the answer, which may be an error.
 *
 * @param life - Lua text for the milliseconds. Pass a constant as a text: with a number, Redis takes 0.5 us longer
 * (commandstats of a script with one SET).
 */
export const storeEvenIfFull = (name: string, value: string, life: string): Fragment =>
  new Fragment(
    { needs: localsOf(name, value, life), sets: ['stored'] },
    `
local stored = redis.pcall('SET', ${name}, ${value}, 'PX', ${life})
if stored.err and string.find(stored.err, 'OOM', 1, true) then
  redis.call('PEXPIRE', ${name}, ${life})
  stored = redis.pcall('SET', ${name}, ${value}, 'PX', ${life})
end
`,
  );
