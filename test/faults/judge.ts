import type { LockMode } from '../../lib/core/lock-mode.js';
import type { RegisterReport } from './access.js';
import type { FaultEvent } from './events.js';
import { type Holding, mostTogether, overlapsOf, tokenFaultsOf } from './holdings.js';
import { registerFaultsOf } from './register-faults.js';

// Judges what processes did with locks by what they wrote down (SAFETY "Judging exclusion in a test"). It knows
// nothing of the library: neither how a lock works nor what was done to it meanwhile.

/** How late an answer may be, in milliseconds (J6). */
const GRACE_MS = 200;

export interface Verdict {
  readonly acquisitions: number;
  /** The most readers and the most permits that were held of a key at the same time. */
  readonly mostTogether: { readonly shared: number; readonly permits: number };
  readonly refusals: Readonly<Record<string, number>>;
  /** J1: two were holders at the same time that exclude each other, or more than there are permits. */
  readonly overlaps: readonly string[];
  /** J2, J3: tokens that two were given that exclude each other, or that are smaller than one returned before. */
  readonly tokenFaults: readonly string[];
  /** J4, J5: what the register accepted and must not have, and writes that were overwritten unseen. */
  readonly registerFaults: readonly string[];
  /** Writes that the register refused: stale holders that the token stopped. */
  readonly refusedWrites: number;
  /** J6. */
  readonly unhandled: readonly string[];
  /** J6: calls that did not settle within their budget and {@link GRACE_MS}. */
  readonly late: readonly string[];
  /** Longest time that a call took from invocation to settling, in milliseconds; without the stalls of its process. */
  readonly worstSettle: number;
  /** Longest time from the end of a validity to telling the holder of it, in milliseconds; without stalls. */
  readonly worstNotice: number;
  /** How many holders were told that their lock is lost. */
  readonly lost: number;
}

/** One attempt, as it went. */
interface Attempt {
  readonly who: string;
  readonly client: string;
  readonly keys: readonly string[];
  readonly mode: LockMode;
  readonly permits: number | undefined;
  readonly invoked: number;
  readonly budget: number;
  settled?: number;
  token?: number;
  slots?: readonly number[] | undefined;
  returned?: number;
  validUntil?: number;
  lost?: number;
  released?: number;
  releaseBudget?: number;
  releaseSettled?: number;
}

type Stall = Extract<FaultEvent, { event: 'stall' }>;

/**
 * @param end - when the test ended; calls that had not settled by then are judged as if they had
 * @param killed - processes that were killed, whose calls could not settle
 */
export function judge(
  events: readonly FaultEvent[],
  register: RegisterReport | undefined,
  end: number,
  killed: ReadonlySet<string> = new Set(),
): Verdict {
  const attempts = attemptsOf(events);
  const stalls = events.filter((event): event is Stall => event.event === 'stall');
  const spent = (client: string, from: number, to: number): number =>
    to - from - stalledBetween(stalls, client, from, to);

  const held = attempts.filter(isHeld).toSorted((a, b) => a.returned - b.returned);
  const holdings = held.flatMap(holdingsOf);
  const late: string[] = [];
  let worstSettle = 0;
  const settles = (
    what: string,
    client: string,
    from: number,
    to: number | undefined,
    budget: number,
  ): void => {
    if (to === undefined && killed.has(client)) return;
    const took = spent(client, from, to ?? end);
    worstSettle = Math.max(worstSettle, took);
    if (took > budget + GRACE_MS) {
      const how = to === undefined ? 'had not settled after' : 'took';
      late.push(`${what} ${how} ${took.toFixed(0)} ms of ${budget} ms`);
    }
  };
  for (const { who, client, invoked, settled, budget, released, releaseSettled, releaseBudget } of attempts) {
    settles(`${who}: acquire`, client, invoked, settled, budget);
    if (released !== undefined) {
      settles(`${who}: release`, client, released, releaseSettled, releaseBudget ?? 0);
    }
  }
  const notices = held.flatMap(({ client, lost, validUntil }) =>
    lost === undefined ? [] : [spent(client, Math.min(validUntil, lost), lost)],
  );

  return {
    acquisitions: held.length,
    mostTogether: mostTogether(holdings),
    refusals: tally(events.flatMap((event) => (event.event === 'refuse' ? [event.code] : []))),
    overlaps: overlapsOf(holdings),
    tokenFaults: tokenFaultsOf(holdings),
    registerFaults: registerFaultsOf(events, register),
    refusedWrites: events.filter((event) => event.event === 'write' && !event.accepted).length,
    unhandled: events.flatMap((event) =>
      event.event === 'unhandled' ? [`${event.client}: ${event.message}`] : [],
    ),
    late,
    worstSettle,
    worstNotice: Math.max(0, ...notices),
    lost: notices.length,
  };
}

function attemptsOf(events: readonly FaultEvent[]): Attempt[] {
  const attempts = new Map<string, Attempt>();
  for (const event of events) {
    if (!('attempt' in event)) continue;
    const who = `${event.client}#${event.attempt}`;
    if (event.event === 'invoke') {
      const { client, keys, mode, permits, at, budget } = event;
      attempts.set(who, { who, client, keys, mode, permits, invoked: at, budget });
      continue;
    }
    const attempt = attempts.get(who);
    if (!attempt) throw new Error(`the log of ${who} begins in the middle, with ${event.event}`);
    switch (event.event) {
      case 'return':
        attempt.settled = attempt.returned = event.at;
        attempt.token = event.token;
        attempt.slots = event.slots;
        attempt.validUntil = event.validUntil;
        break;
      case 'refuse':
        attempt.settled = event.at;
        break;
      case 'renew':
        attempt.validUntil = event.validUntil;
        break;
      case 'lost':
        attempt.lost = event.at;
        break;
      case 'release':
        attempt.released = event.at;
        attempt.releaseBudget = event.budget;
        break;
      case 'released':
        attempt.releaseSettled = event.at;
        break;
      case 'read':
      case 'write':
        break;
    }
  }
  return [...attempts.values()];
}

type Held = Attempt & { readonly token: number; readonly returned: number; readonly validUntil: number };

function isHeld(attempt: Attempt): attempt is Held {
  return attempt.returned !== undefined;
}

/** When the holder stopped to be one: it gave the lock back, or was told of its loss, or the validity ended. */
function endOf({ released, lost, validUntil }: Held): number {
  return Math.min(released ?? Infinity, lost ?? Infinity, validUntil);
}

function holdingsOf(held: Held): Holding[] {
  const { who, keys, mode, permits, slots, token, invoked, returned } = held;
  return keys.map((key, index) => {
    const slot = slots?.[index];
    return { who, key, mode, permits, slot, token, invoked, returned, end: endOf(held) };
  });
}

function stalledBetween(stalls: readonly Stall[], client: string, from: number, to: number): number {
  let sum = 0;
  for (const stall of stalls) {
    if (stall.client !== client) continue;
    sum += Math.max(0, Math.min(to, stall.at) - Math.max(from, stall.at - stall.duration));
  }
  return sum;
}

function tally(values: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const value of values) counts[value] = (counts[value] ?? 0) + 1;
  return counts;
}
