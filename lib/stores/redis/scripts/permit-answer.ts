import type { AcquireReply, KeyHolder, SlotWish } from '../../../core/ports.js';
import { STATE } from '../record.js';
import { HELD, readAcquireReply } from './acquire-answer.js';
import { Fields, Outcome } from './fields.js';
import { parsePermit, parsePermitRecord, permitsOfRecord } from './permits.js';

/** Number of digits of a token in the answer for a stored lease. */
export const TOKEN_DIGITS = 16;
/** Number of digits of a slot in that answer. */
export const SLOT_DIGITS = 4;

/**
 * The lease was stored, as in `STORED`, or without waiters: then `waiting` is 0. Another lease of the phase asked for more
 * permits than this lease: `most` is the largest number.
 */
export const STORED_BESIDE_MORE = new Outcome(0, 'granted', 'waiting', 'most');

/**
 * All slots of the key at this position are taken: the ten holders that end first, or the holder of the exactly
 * requested slot, each as in {@link TOLD}. `most` is the largest number of permits that any lease of the phase asked for.
 */
export const ALL_TAKEN = new Fields('position', 'holders', 'most');

/** A holder, with the milliseconds left of its lease. */
export const TOLD = new Fields('id', 'details', 'left');

type Grant = Extract<AcquireReply, { granted: true }>;

/** The slot of a lease that the straight path stored, if its request names no slot. */
const FIRST = [0];

/**
 * Reads the answer about one lease, as {@link readAcquireReply} does. Also reads the slots of a granted lease, and the
 * holders of a lock whose permits are all taken.
 *
 * @param wish - the requested slots
 */
export function readAcquirePermitsReply(answer: unknown, wish?: SlotWish): AcquireReply | Error {
  if (answer instanceof Error) return answer;
  // A number means that the straight path stored every lease. All leases then have the same token, and each lease has
  // the slot that it requested.
  if (typeof answer === 'number') return grant(answer, wish?.slots ?? FIRST);
  if (!Array.isArray(answer)) return grantIn(String(answer));
  const stored = STORED_BESIDE_MORE.of(answer);
  if (stored) {
    const granted = grantIn(String(stored.granted));
    if (granted instanceof Error) return granted;
    const asked = stored.most === undefined ? {} : { permits: Number(stored.most) };
    return { ...granted, nextIsFirst: Number(stored.waiting) > 1, ...asked };
  }
  const { holders, most } = ALL_TAKEN.of(answer);
  if (Array.isArray(holders)) {
    const [holder, ...others] = TOLD.rows(holders).map(({ id, details, left }): KeyHolder =>
      parsePermit(String(id), String(details), Number(left)),
    );
    if (holder) return { granted: false, holder, others, permits: Number(most) };
  }
  const { position, record, left } = HELD.of(answer);
  const named = String(record);
  if (Number(position) > 0 && named.startsWith(STATE.permits))
    return {
      granted: false,
      holder: parsePermitRecord(named, Number(left)),
      others: [],
      permits: permitsOfRecord(named),
    };
  return readAcquireReply(answer);
}

function grantIn(granted: string): Grant | Error {
  const slots: number[] = [];
  for (let at = TOKEN_DIGITS; at < granted.length; at += SLOT_DIGITS)
    slots.push(Number(granted.slice(at, at + SLOT_DIGITS)));
  return grant(Number(granted.slice(0, TOKEN_DIGITS)), slots);
}

/** A grant without a token or a slot is an error. */
function grant(token: number, slots: readonly number[]): Grant | Error {
  if (Number.isSafeInteger(token) && token > 0 && slots.length > 0) return { granted: true, token, slots };
  return new Error(
    `answered the token ${token} and ${slots.length} slots instead of a fencing token and a slot of each key`,
  );
}
