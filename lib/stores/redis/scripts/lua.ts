import { RECORD } from '../record.js';

/**
 * Lua text for the last token of the local `record`, a string; `nil` or false when it is no record (S19). The colon behind the
 * token tells a record from a long number.
 */
export const TOKEN_OF_RECORD =
  `#record >= ${RECORD.shortest} and string.byte(record, ${RECORD.token[1] + 1}) == 58 ` +
  `and tonumber(string.sub(record, ${RECORD.token.join(', ')}))`;

/**
 * Lua text that makes an error in the local `answer` begin with its code: before Redis 7 an error that a script caught begins
 * with the place in the script.
 */
export const CODE_FIRST = `
local text = string.match(answer.err, '^@user_script: %d+: %-(.*)')
if text then
  answer = redis.error_reply(text)
end
`;
