import { ID_LENGTH } from '../../../core/random-id.js';
import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { AcquireRequest } from '../../../core/ports.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { RECORD } from '../record.js';
import { TOO_LATE, TOO_YOUNG } from './acquire-answer.js';
import { Arguments, number, text } from './arguments.js';
import { Fragment } from './fragment.js';
import { identify, isOfAnother } from './identity.js';
import { digitsOf, REFUSE_FOREIGN_MARKER, TELL_ERROR, tokenOf } from './lua.js';
import { bornIn, highIn, markerWith, NODE_KEYS, nodeKeys } from './marker.js';
import { type Packed, pack } from './script.js';

/** The facts that all leases of a command have in common. */
export interface AcquireCommand {
  readonly keyPrefix: string;
  /** The prefix of channel names; empty on a Cluster. */
  readonly base: string;
  readonly ordered: boolean;
  /** The key of the node's marker, if it has one. */
  readonly marker: string | undefined;
  /** The key of the node's identity, if the restart guard applies to the node and its user may run INFO. */
  readonly identity: string | undefined;
  /** Milliseconds since 1970 on the clock of this process. */
  readonly wall: number;
  /**
   * Deadline of the request, in milliseconds since 1970 on the server's clock: no caller waits for the answer after it.
   */
  readonly deadline: number;
  readonly guard: number;
}

/** The beginning of a command. */
interface Beginning {
  readonly form: string;
  readonly ttl: number;
  readonly proposal: number;
  readonly command: AcquireCommand;
}

/** The first arguments of every acquire script. KEYS begins with the node's marker and its identity key, if it has them. */
const BEGIN = new Arguments<Beginning>({
  /**
   * Three characters, each a letter or `-`:
   *
   * - `p` when every lease is plain: it has one key and no further details, and so only one argument
   * - `o` at the node that keeps the queue; `h` when the leases heal (S26): they are held, and this node does not store
   *   them. No lease is plain then, and none has a waiter; in the place of the milliseconds that its waiter has waited
   *   is its token
   * - `m` when KEYS begins with the marker; `g` when it begins with the marker and the identity key; `c` when there is no
   *   marker, but {@link SEVERAL} is given
   */
  form: text(({ form }) => form),
  /** The life of the records in milliseconds: ttl plus LINGER_MS. */
  life: text(({ ttl }) => ttl + LINGER_MS),
  /**
   * The time on this server's clock, in milliseconds since 1970, after which no caller waits for the answer (S16).
   */
  deadline: text(({ command }) => command.deadline),
  /** The prefix of channel names; empty on a Cluster. */
  base: text(({ command }) => command.base),
});

/** The further arguments with `m`, `g` or `c`. */
const SEVERAL = new Arguments<Beginning>({
  /** Milliseconds, or 0 for no guard (S12). */
  guard: text(({ command }) => command.guard),
  /** The proposed token; each node grants it unless the next token of this node must be larger. */
  proposal: number(({ proposal }) => proposal),
});

/** The further argument with `g`. */
const GUARDED = new Arguments<Beginning>({
  /** Milliseconds since 1970 on the client's clock (S28). */
  wall: number(({ command }) => command.wall),
});

/** The code of a letter, in the form in which Lua compares it. */
const codeOf = (letter: string): number => letter.charCodeAt(0);

/** A token that is ahead of the node's clock by more than this number of steps is stored in the node's marker. */
const LEAD = (LEAD_MS * STEPS_PER_SECOND) / 1_000;

/** Lua text that reads the beginning of a command, and the marker. */
export const BEGIN_ACQUIRE = new Fragment(
  {
    needs: [],
    sets: [
      ...['call', 'pcall', 'sub', 'byte', 'time', 'seconds', 'micros', 'now', 'clock'],
      ...['form', 'life', 'deadline', 'base', 'plain', 'ordered', 'heals', 'late'],
      ...['least', 'ahead', 'young', 'header', 'key', 'guard', 'proposal', 'why', 'shape'],
      ...['marker', 'born', 'high'],
    ],
  },
  `
local call, pcall, sub, byte = redis.call, redis.pcall, string.sub, string.byte
local time = call('TIME')
local seconds, micros = time[1] + 0, time[2] + 0
local now = seconds * 1000 + micros / 1000
local clock = seconds * ${STEPS_PER_SECOND} + math.floor(micros * ${STEPS_PER_SECOND / 1_000_000})
${BEGIN.locals(1)}
local plain, ordered, heals = byte(form, 1) == ${codeOf('p')}, byte(form, 2) == ${codeOf('o')}, byte(form, 2) == ${codeOf('h')}
local late = now - deadline
local least, ahead, young, header, key = clock, clock + ${LEAD}, 0, ${BEGIN.size}, 0
local guard, proposal, why, shape, marker, born, high = 0, 0, '-', byte(form, 3)
if shape ~= ${codeOf('-')} then
  header = ${BEGIN.size + SEVERAL.size}
  ${SEVERAL.assign(BEGIN.size + 1)}
  if proposal > clock then
    least = proposal < ahead and proposal or ahead
  end
end
if shape == ${codeOf('m')} or shape == ${codeOf('g')} then
  marker, key = ${NODE_KEYS.marker}, 1
  local written = call('GET', marker)
  ${REFUSE_FOREIGN_MARKER}
  born, high = now, 0
  if written then
    born, high = ${bornIn('written')}, ${highIn('written')}
  end
  if not written or born > now then
    -- The time in the marker is in the future, because the clock was set back. Replace it.
    born = math.floor(now)
    call('SET', marker, ${markerWith('born', 'high')})
  end
  young = guard - (now - born)
  if shape == ${codeOf('g')} then
    key, header = 2, ${BEGIN.size + SEVERAL.size + GUARDED.size}
    local identity = ${NODE_KEYS.identity}
    ${GUARDED.locals(BEGIN.size + SEVERAL.size + 1)}
    ${identify({ check: 'false', another: 'false', votes: 'young <= 0 and guard - age <= 0' }, ['young', 'guard'])}
    if guard - age >= young then
      young, why = guard - age, cause
    end
  end
  if high >= least then
    least = high + 1
  end
end
`,
);

/** The parts of {@link straightPath} that differ between the modes. */
interface StraightPath {
  /**
   * The number of Redis keys (KEYS) that each locked key of a lease has besides its mark: first the number at the node
   * that keeps the queue, then the number at other nodes.
   */
  readonly keys: readonly [ordered: number, unordered: number];
  /** The state of the record, see `STATE`. */
  readonly state: string;
  /**
   * `true` if the node refuses a lease of this mode because of the mark of an earlier waiter ({@link readMarks}). An
   * exclusive lease can take a free key in spite of marks.
   */
  readonly marked?: boolean;
  /**
   * Lua text for the end of the record, after the text of the lease (`leasePart`). It can use the local `seen`: the
   * free record that the key had before, or false.
   */
  readonly end?: string;
  /**
   * Lua text for the answer to a lease that the straight path stored. The text runs only if the straight path has not
   * stored all leases of the command. It can use `i`, the position of the lease in the command.
   */
  readonly answer?: string;
}

/**
 * Lua text that sets three locals: `marks` (the number of KEYS before the first mark), `marked` (true if any mark
 * exists), and `key` (the number of KEYS before the other KEYS of the leases).
 *
 * The marks of all leases come first in KEYS, so that one EXISTS checks them. With 64 leases in flight, EXISTS takes
 * 0.1 us for each mark, and a GET would take 0.4 us (CPU time of a server that does nothing else).
 *
 * @param keys - the number of Redis keys (KEYS) that each locked key of a lease has besides its mark: first the number
 * at the node that keeps the queue, then the number at other nodes
 */
export const readMarks = ([ordered, unordered]: StraightPath['keys']): Fragment =>
  new Fragment(
    { needs: ['key', 'ordered', 'heals', 'pcall'], sets: ['marks', 'marked'] },
    `
local marks = key
key = key + (#KEYS - key) / (ordered and ${ordered + 1} or ${unordered + 1})
-- Read mark by mark if there are more marks than Lua can unpack. Do so as well if EXISTS fails, for example because the
-- user may not run EXISTS: then each GET reports its own error.
local marked = not heals and (key - marks > 1000 or pcall('EXISTS', unpack(KEYS, marks + 1, key)) ~= 0)
`,
  );

/**
 * Lua text of the straight path: the fast first part of an acquire script. It stores leases whose key has no record, or
 * a free record without waiters: the usual cases. At the first lease in another case, it stops. The rest of the script,
 * the general path, continues from that lease.
 *
 * Sets the locals `answers`, `first` (the argument of the lease at which the
 * general path begins) and `seen` (the record of the key of that lease, if the straight path has read it).
 */
export function straightPath({ keys, state, marked, end = '', answer = 'least' }: StraightPath): Fragment {
  return new Fragment(
    {
      needs: [
        ...['byte', 'sub', 'pcall', 'plain', 'ordered', 'late', 'young', 'life', 'header', 'key'],
        ...['clock', 'proposal', 'least', 'ahead'],
        ...(marked ? ['marks', 'marked'] : []),
      ],
      sets: ['answers', 'first', 'seen'],
    },
    `
local answers, first, seen = {}, header + 1
-- With 64 leases in flight the straight path takes 2.8 us for each lease, and the script without it 3.7 to 4.2 us
-- (bench -- server-time).
if plain and late <= 0 and young <= 0 and (least == clock or least == proposal) and least <= ahead
  and least <= ${Number.MAX_SAFE_INTEGER} then
  local head, step = nil, ordered and ${keys[0]} or ${keys[1]}
  for at = first, #ARGV do
    local lease, name = ARGV[at], KEYS[key + 1]
    seen = pcall('GET', name)
    if seen and (seen.err or byte(seen, 1) ~= ${RECORD.free} or byte(seen, 2) == ${RECORD.waited}
      or sub(seen, ${RECORD.id.join(', ')}) == sub(lease, 1, ${ID_LENGTH}) or ((${tokenOf('seen')}) or least) >= least)${
        marked
          ? `
      or marked and pcall('GET', KEYS[marks + at - header])`
          : ''
      } then
      break
    end
    head = head or '${state}-' .. ${digitsOf('least')} .. ':'
    if pcall('SET', name, head .. lease${end}, 'PX', life).err then
      break
    end
    first, key = at + 1, key + step
  end
  if first > #ARGV then
    -- Return the clock alone: an array would take 0.5 us more (commandstats of a script that does nothing else).
    return clock
  end
  for i = 1, first - header - 1 do
    answers[i] = ${answer}
  end
end
`,
  );
}

/**
 * Lua text that stores a token in the marker if the token is ahead of the clock. Later tokens must still be larger
 * after the record has expired.
 *
 * If there is an error, sets `answer` to it.
 */
export const RAISE_MARKER = new Fragment(
  { needs: ['answer', 'token', 'marker', 'high', 'clock', 'born', 'pcall'] },
  `
    if token > ${Number.MAX_SAFE_INTEGER} then
      answer = redis.error_reply('ERR fencing token out of range: the token or the clock of this server is wrong')
    elseif marker and token > math.max(high, clock + ${LEAD}) then
      local lifted = pcall('SET', marker, ${markerWith('born', 'token')})
      if lifted.err then
        answer = lifted
      else
        high = token
      end
    end
`,
);

/**
 * Lua text that is true if the node must not vote because another server wrote its data. Then the lease of a repeated
 * request may be a copy of the grant of that server, which is no vote of this node (S28): the node was a replica meanwhile.
 */
export const IS_COPY = `young > 0 and (${isOfAnother('why')})`;

/**
 * Lua text that refuses a lease without an answer if the command is too late (S16), or if the node must not vote yet
 * (S12).
 */
export const REFUSE_UNFIT = new Fragment(
  { needs: ['answer', 'late', 'young', 'why'] },
  `
  if not answer and late > 0 then
    answer = ${TOO_LATE.lua({ by: 'math.ceil(late)' })}
  elseif not answer and young > 0 then
    answer = ${TOO_YOUNG.lua({ left: 'math.ceil(young)', cause: 'why' })}
  end
`,
);

/** Lua text that adds the `answer` for a lease to the `answers`. */
export const ADD_ANSWER = new Fragment(
  { needs: ['answer', 'answers'] },
  `
  if type(answer) == 'table' and answer.err then
    ${TELL_ERROR}
  end
  answers[#answers + 1] = answer
`,
);

/** Lua text that ends a command: after the answers comes the time in microseconds on this server's clock. */
export const END_ACQUIRE = new Fragment(
  { needs: ['answers', 'seconds', 'micros'] },
  `
answers[#answers + 1] = seconds * 1000000 + micros
return answers
`,
);

/**
 * Packs the command of an acquire script.
 *
 * @param names - the Redis keys of the leases
 * @param rows - the arguments after the beginning
 */
export function packAcquireWith(
  names: readonly string[],
  rows: readonly (string | number)[],
  requests: readonly AcquireRequest[],
  command: AcquireCommand,
  plain: boolean,
): Packed {
  const { marker, identity, ordered } = command;
  const [first] = requests;
  const proposal = requests.reduce((most, request) => Math.max(most, request.proposal), 0);
  const shape = shapeOf(marker, identity, proposal);
  const node = ordered ? 'o' : first?.heals === true ? 'h' : '-';
  const begin: Beginning = {
    form: `${plain ? 'p' : '-'}${node}${shape}`,
    ttl: first?.lease.ttl ?? 0,
    proposal,
    command,
  };
  const args: (string | number)[] = [];
  BEGIN.push(args, begin);
  if (shape !== '-') SEVERAL.push(args, begin);
  if (shape === 'g') GUARDED.push(args, begin);
  return pack([...nodeKeys(marker, identity), ...names], [...args, ...rows]);
}

/** The third character of the form. */
function shapeOf(marker: string | undefined, identity: string | undefined, proposal: number): string {
  if (marker !== undefined) return identity === undefined ? 'm' : 'g';
  return proposal > 0 ? 'c' : '-';
}
