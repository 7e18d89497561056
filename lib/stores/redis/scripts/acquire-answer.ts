import { NoTimeError, type YoungBecause } from '../../../core/errors.js';
import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { AcquireReply, AcquireRequest } from '../../../core/ports.js';
import { ownerOfTick, ownerOfWaiter } from '../record.js';
import { Fields, Outcome } from './fields.js';
import { causeOf } from './identity.js';
import { namedBy } from './read.js';

/**
 * The lease was stored, and there are waiters: `waiting` is 2 if the next waiter of the process is the first of all
 * these waiters, else 1.
 */
export const STORED = new Outcome(0, 'token', 'waiting');

/**
 * The key at this position among the keys of the lease, counted from 1, is held by another lease for `left` milliseconds
 * more; -1 for ever.
 */
export const HELD = new Fields('position', 'record', 'left');

/** The deadline had passed, `by` milliseconds before (S16). */
export const TOO_LATE = new Outcome(-1, 'by');

/** The node's data is younger than the guard (S12), for `left` milliseconds more. */
export const TOO_YOUNG = new Outcome(-2, 'left', 'cause');

/** The tick or a later tick has run: the value of the tick's key, which lasts `left` milliseconds more. */
export const ALREADY_RAN = new Outcome(-3, 'value', 'left');

/** The lock is free, but the turn or the mark of a waiter excludes the lease for `left` milliseconds more. */
export const TURN_OF_ANOTHER = new Outcome(-4, 'waiter', 'left');

/**
 * Reads the reply of an acquire script: an answer for each request, and then the time in microseconds on the server's
 * clock.
 */
export function acquireAnswers(reply: unknown, requests: readonly AcquireRequest[]): readonly unknown[] {
  if (Array.isArray(reply)) return reply;
  const clock = Number(reply);
  const token = requests.reduce((most, { proposal }) => Math.max(most, proposal), clock);
  const answers: unknown[] = requests.map(() => token);
  answers.push((clock * 1_000_000) / STEPS_PER_SECOND);
  return answers;
}

/** `true` if the request arrived after its deadline, so that the node has done nothing. */
export function isTooLate(answer: unknown): boolean {
  return TOO_LATE.of(answer) !== undefined;
}

/** Milliseconds until the node may vote, because of its marker; `undefined` for any other answer. */
export function tooYoungFor(answer: unknown): number | undefined {
  const young = TOO_YOUNG.of(answer);
  return young && Number(young.left);
}

/** The cause of an answer that the node is too young; `undefined` if the cause is not known. */
export function youngBecause(answer: unknown): YoungBecause | undefined {
  return causeOf(TOO_YOUNG.of(answer)?.cause);
}

/**
 * Reads an answer about one lease, other than {@link TOO_YOUNG}. Numbers may be strings from a passed-in client
 * (`stringNumbers`).
 */
export function readAcquireReply(answer: unknown): AcquireReply | Error {
  if (answer instanceof Error) return answer;
  if (!Array.isArray(answer)) return grant(answer);
  const stored = STORED.of(answer);
  if (stored) {
    const granted = grant(stored.token);
    return granted instanceof Error ? granted : { ...granted, nextIsFirst: Number(stored.waiting) > 1 };
  }
  const late = TOO_LATE.of(answer);
  if (late) return new NoTimeError(`got the request ${String(late.by)} ms too late, and did nothing`);
  const ran = ALREADY_RAN.of(answer);
  if (ran) {
    const id = String(ran.value);
    return { granted: false, ran: true, holder: { id, owner: ownerOfTick(id), remaining: Number(ran.left) } };
  }
  const turn = TURN_OF_ANOTHER.of(answer);
  if (turn) {
    const id = String(turn.waiter);
    return { granted: false, holder: { id, owner: ownerOfWaiter(id), remaining: Number(turn.left) } };
  }
  const { record, left } = HELD.of(answer);
  return { granted: false, holder: namedBy(String(record), Number(left)) };
}

/** A grant without a token is an error. */
function grant(token: unknown): { readonly granted: true; readonly token: number } | Error {
  const granted = Number(token);
  if (Number.isSafeInteger(granted) && granted > 0) return { granted: true, token: granted };
  return new Error(`answered ${String(token)} instead of a fencing token`);
}

/** `true` if there were waiters for the lock at the time of the answer. */
export function showsWaiters(answer: unknown): boolean {
  if (!Array.isArray(answer)) return false;
  const stored = STORED.of(answer);
  if (stored) return Number(stored.waiting) > 0;
  return Number(HELD.of(answer).position) > 0 || TURN_OF_ANOTHER.of(answer) !== undefined;
}
