import type { YoungBecause } from '../../../core/errors.js';
import { Fragment } from './fragment.js';
import { REFUSE_FOREIGN_IDENTITY } from './lua.js';

/** Positions of the parts in the value of a node's identity key, as in Lua. */
const SINCE = [1, 16];
const WALL = [18, 33];
const CAUSE = 35;
const REPLICATION = [37, 90];

/** The letters of the causes in the identity key. */
const CAUSES: Readonly<Record<string, YoungBecause>> = { r: 'server', d: 'replication' };

/**
 * The letter of a node that has not voted since its first sight. It has granted no lock that another run could lack, so
 * a restart then does not begin the guard again. A promoted replica with this letter may lack the first vote of its master.
 */
const UNUSED = 'n';

/** Reads the letter of a cause. */
export function causeOf(letter: unknown): YoungBecause | undefined {
  return CAUSES[String(letter)];
}

/** Lua text that is true if a local with the letter of a cause says that another server, or another run, wrote the data. */
export function isOfAnother(letter: string): string {
  return Object.keys(CAUSES)
    .map((each) => `${letter} == '${each}'`)
    .join(' or ');
}

/** The parts of a node's identity that `nodes doctor` shows. */
export interface Identity {
  /** Milliseconds since 1970 on the server's clock at the first sight; 0 if the node was in use before. */
  readonly since: number;
  readonly cause: YoungBecause | undefined;
  readonly runId: string;
}

/** Reads the value of a node's identity key; `undefined` if it is not one. */
export function parseIdentity(value: string | null): Identity | undefined {
  const [, since, letter, runId] = /^(\d{16}):\d{16}:(.):.* run_id:(\w*)$/.exec(value ?? '') ?? [];
  if (since === undefined || runId === undefined) return undefined;
  return { since: Number(since), cause: causeOf(letter), runId };
}

/**
 * Lua text that finds out whose data the node has (S28). The identity key is in the data, and names the run of the
 * server and the history of replication that wrote the data:
 *
 * - Another run: the server restarted, the data was copied to this server, or a replica was promoted. A restart from an
 *   old snapshot has an old marker, and the uptime is wrong after a step of the clock.
 * - Another history, and a former history (`master_replid2`): the server was a replica in between, so its data came from
 *   its master. A client stays connected meanwhile. A master without a former history changes its id when its first
 *   replica attaches and when its backlog expires; its data is then the same.
 *
 * The value begins with 16 digits of the first sight on the server's clock, in milliseconds since 1970, or 0 if the node
 * was in use before it had this key. Then come 16 digits of the same moment on the client's clock, a letter for the
 * cause, and the two ids. There are two clocks because the clock of a server is often set a short while after it booted.
 * The smaller of both times counts, so that a step of one clock does not end the guard.
 *
 * Runs with each acquisition, because a server may become a replica and a master again between two of them. The text
 * parses a report only if the identity differs.
 *
 * A node gets the letter `n` at its first contact, and loses it with its first vote. Until then a restart of the server
 * does not begin the guard again: there is no grant that the data of another run could lack. A server with a former
 * history was a replica, and may have this letter because it lacks the first vote of its master.
 *
 * Needs `written` (the value of the marker, false without a marker), `identity` (the key) and `wall` (the client's clock, in milliseconds). Sets `age`
 * and `cause`. Without the right to run INFO, `age` is `math.huge`.
 *
 * @param check - Lua text that is true if the run must be compared, whether or not the history is the same
 * @param another - Lua text that is true if the client knows that `run` is another server than before
 * @param votes - Lua text that is true if the node votes in this command
 * @param further - the locals in these texts
 */
export const identify = (
  { check, another, votes }: Readonly<Record<'check' | 'another' | 'votes', string>>,
  further: readonly string[],
): Fragment =>
  new Fragment(
    {
      needs: ['call', 'pcall', 'sub', 'now', 'written', 'identity', 'wall', ...further],
      sets: ['age', 'cause', 'replication'],
    },
    `
local age, cause = math.huge, '-'
local replication = pcall('INFO', 'replication')
if type(replication) == 'string' then
  if string.find(replication, 'role:slave', 1, true) then
    return redis.error_reply('READONLY the node is a replica, which loses locks')
  end
  local known, since, walled, write = call('GET', identity), 0, 0, false
  ${REFUSE_FOREIGN_IDENTITY}
  if known then
    since, walled, cause = sub(known, ${SINCE.join(', ')}) + 0, sub(known, ${WALL.join(', ')}) + 0, sub(known, ${CAUSE}, ${CAUSE})
  end
  local ids = known and sub(known, ${REPLICATION[0]})
  if ${check} or not known or not string.find(replication, sub(known, ${REPLICATION.join(', ')}), 1, true) then
    local server = pcall('INFO', 'server')
    local run = type(server) == 'string' and string.match(server, 'run_id:(%w+)') or ''
    ids = (string.match(replication, 'master_replid:%w+') or '') .. ' run_id:' .. run
    local young = not known and not written
    local differs = known and sub(known, ${REPLICATION[0]}) ~= ids
    local other = differs and string.match(known, 'run_id:(%w*)') ~= run
    local follower = differs and string.find(replication, 'master_replid2:0*[1-9a-f]')
    if young then
      cause = '${UNUSED}'
    elseif ${another} or other and (follower or cause ~= '${UNUSED}') then
      young, cause = true, 'r'
    elseif other then
      since, walled = 0, 0
    elseif follower then
      young, cause = true, 'd'
    end
    if young then
      since, walled = math.floor(now), wall
    end
    write = young or differs or not known
  end
  if since > 0 then
    if since > now or walled > wall then
      -- A clock was set back, or the clock of this client is behind the clock of an earlier client.
      since, walled, write = math.min(since, math.floor(now)), math.min(walled, wall), true
    end
    age = math.min(now - since, wall - walled)
  end
  if cause == '${UNUSED}' and ${votes} then
    cause, write = '-', true
  end
  if write then
    -- When memory is short this fails, and the next command finds the same difference.
    pcall('SET', identity, string.format('%016.0f:%016.0f:', since, walled) .. cause .. ':' .. ids)
  end
end
`,
  );
