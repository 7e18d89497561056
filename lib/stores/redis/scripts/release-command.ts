import type { ReleaseRequest } from '../../../core/ports.js';
import { Arguments, number, text } from './arguments.js';
import { Fragment } from './fragment.js';
import { TELL_ERROR } from './lua.js';
import { type Packed, pack } from './script.js';

/** The forms of a release. */
const SHAPE = {
  /** Every lease has one key and no further details, so that its id is its only argument. */
  plain: 'p',
  /** As `plain`, and every lease was that of a lock ({@link ReleaseRequest.wasHeld}). */
  plainHeld: 'h',
  /** The command names no queues, so that waiters get no message. */
  withoutQueues: 'w',
  other: '-',
} as const;

type Shape = keyof typeof SHAPE;

/** The arguments before those of the leases: the prefix of channel names, empty on a Cluster, and a `SHAPE`. */
const BEGIN = new Arguments<{ readonly base: string; readonly shape: Shape }>({
  base: text(({ base }) => base),
  shape: text(({ shape }) => SHAPE[shape]),
});

/** The position of the first lease in ARGV. */
export const FIRST_RELEASED = BEGIN.size + 1;

/** Lua text that begins a release. */
export const BEGIN_RELEASE = new Fragment(
  { needs: [], sets: ['base', 'shape', 'plain', 'queued', 'answers', 'key', 'quiet'] },
  `
${BEGIN.locals(1)}
local plain, queued = shape == '${SHAPE.plain}' or shape == '${SHAPE.plainHeld}', shape ~= '${SHAPE.withoutQueues}'
local answers, key, quiet = {}, 0, true
`,
);

/** The argument `held` of each lease: 1 if it was that of a lock ({@link ReleaseRequest.wasHeld}). */
export const WAS_HELD = number<ReleaseRequest>(
  ({ wasHeld }) => (wasHeld === true ? 1 : 0),
  `shape == '${SHAPE.plainHeld}' and 1 or 0`,
);

/** Lua text that adds the answer about a lease: `answer`, which is an error or nil, or `woken`. */
export const ADD_RELEASED = new Fragment(
  { needs: ['answer', 'answers', 'woken', 'quiet'] },
  `
  if answer then
    ${TELL_ERROR}
  end
  answers[#answers + 1] = answer or woken
  quiet = quiet and not answer and woken == 0
`,
);

/** Lua text that ends a release. */
export const END_RELEASE = new Fragment(
  { needs: ['answers', 'quiet'] },
  `
-- Return no array if all answers are 0: an array takes 0.4 us more (commandstats, one release at a time).
return quiet and 0 or answers
`,
);

/**
 * Packs the command of a release script.
 *
 * @param form - `'plain'` if every lease is plain, whether or not it was that of a lock
 */
export function packReleaseWith(
  names: readonly string[],
  requests: readonly ReleaseRequest[],
  row: Arguments<ReleaseRequest>,
  base: string,
  form: Exclude<Shape, 'plainHeld'>,
): Packed {
  const shape = form === 'plain' ? plainShapeOf(requests) : form;
  const args: (string | number)[] = [];
  BEGIN.push(args, { base, shape });
  for (const request of requests) row.push(args, request, shape === 'plain' || shape === 'plainHeld');
  return pack(names, args);
}

/** The shape of a command whose leases are plain. Leases of locks and of failed attempts together need their arguments. */
function plainShapeOf(requests: readonly ReleaseRequest[]): Shape {
  const held = requests.filter(({ wasHeld }) => wasHeld === true).length;
  return held === 0 ? 'plain' : held === requests.length ? 'plainHeld' : 'other';
}

/** The answer about one lease in the reply of a release script. */
export function releaseAnswer(reply: unknown, index: number): unknown {
  return Array.isArray(reply) ? (reply as readonly unknown[])[index] : reply;
}
