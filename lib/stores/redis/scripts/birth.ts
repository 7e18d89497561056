import type { YoungBecause } from '../../../core/errors.js';
import { Arguments, number, text } from './arguments.js';
import { Fields } from './fields.js';
import { causeOf, identify } from './identity.js';
import { REFUSE_FOREIGN_MARKER } from './lua.js';
import { bornIn, markerWith, NODE_KEYS, nodeKeys } from './marker.js';
import { type Packed, pack, script } from './script.js';

/** The server to which the former connection of a node led. */
export interface FormerServer {
  readonly runId: string;
  /** Milliseconds since its last answer, or less. */
  readonly silentFor: number;
}

/** The facts that the client tells of itself. */
const CLIENT = new Arguments<{ readonly wall: number; readonly former: FormerServer | undefined }>({
  /** Milliseconds since 1970 on the client's clock. */
  wall: number(({ wall }) => wall),
  /** The run id of the server to which the former connection led; empty for none. */
  former: text(({ former }) => former?.runId ?? ''),
  /** Milliseconds since the last answer of that server. */
  silentFor: number(({ former }) => Math.floor(former?.silentFor ?? 0)),
});

/**
 * The reply: microseconds since 1970 on this server's clock; the milliseconds for which the node has had its data, or -1
 * if that is not known; and a letter for the cause, see {@link identify}.
 */
const BORN = new Fields('micros', 'age', 'cause');

/**
 * Reads the server's clock, and sets a missing marker to the time of this first contact. Runs on each new connection,
 * and in `RedisStore.check`. A server that loses its data loses the marker, too (S12).
 *
 * KEYS     the marker, or none; the identity key of the node, if the user may run INFO (S28)
 * ARGV     with an identity key: `CLIENT`
 * Returns  `BORN`
 *
 * Tokens follow the server's clock, but can be ahead of it. The marker has 16 digits of the milliseconds since 1970 at
 * the first contact, a colon, and 16 digits of the largest token that was ahead.
 *
 * Another server at the same address may have an old identity of its own. The client then knows that it is another
 * server, and makes it young, unless another client has done so since the last answer of the former server.
 */
export const BIRTH = script(`
local call, pcall, sub = redis.call, redis.pcall, string.sub
local time, known, why = call('TIME'), -1, '-'
local now = time[1] * 1000 + time[2] / 1000
if ${NODE_KEYS.marker} then
  local written = call('GET', ${NODE_KEYS.marker})
  ${REFUSE_FOREIGN_MARKER}
  known = written and math.max(0, now - ${bornIn('written')}) or 0
  if ${NODE_KEYS.identity} then
    local identity = ${NODE_KEYS.identity}
    ${CLIENT.locals(1)}
    ${identify(
      {
        check: 'true',
        another: `former ~= '' and run ~= '' and former ~= run and now - since > silentFor`,
        votes: 'false',
      },
      ['former', 'silentFor'],
    )}
    if age <= known then
      known, why = math.max(0, age), cause
    end
  end
  if not written then
    -- Write only a missing marker: a write fails when memory is short.
    call('SET', ${NODE_KEYS.marker}, ${markerWith('math.floor(now)', '0')})
  end
end
return ${BORN.lua({ micros: 'time[1] * 1000000 + time[2]', age: 'math.floor(known)', cause: 'why' })}
`);

/** The number of keys, the keys and the arguments of {@link BIRTH}. */
export function packBirth(
  marker: string | undefined,
  identity: string | undefined,
  wall: number,
  former: FormerServer | undefined,
): Packed {
  const args: (string | number)[] = [];
  if (marker !== undefined && identity !== undefined) CLIENT.push(args, { wall, former });
  return pack(nodeKeys(marker, identity), args);
}

/** The time for which a node has had its data. */
export interface NodeAge {
  /** Milliseconds; `Infinity` if the node has no marker. */
  readonly age: number;
  readonly cause: YoungBecause | undefined;
}

/** Reads the reply of {@link BIRTH}. */
export function readBirth(reply: unknown): NodeAge & { readonly micros: number } {
  const { micros, age, cause } = BORN.of(reply as readonly unknown[]);
  return { micros: Number(micros), age: Number(age) < 0 ? Infinity : Number(age), cause: causeOf(cause) };
}
