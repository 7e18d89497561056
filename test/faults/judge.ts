import type { LockMode } from '../../lib/core/lock-mode.js';
import type { RegisterReport } from './access.js';
import type { FaultEvent } from './events.js';
import { type Holding, mostTogether, overlapsOf, tokenFaultsOf } from './holdings.js';
import { registerFaultsOf } from './register-faults.js';

// The judge reads only the logs of the processes (docs/fault-tests.md, "How it is judged"). The judge knows neither how
// a lock works nor which faults a test caused.

/** Allowed delay of an answer, in milliseconds (J6). */
const GRACE_MS = 200;

export interface Verdict {
  readonly acquisitions: number;
  /** The largest number of readers, and of holders of permits, of one key at the same time. */
  readonly mostTogether: { readonly shared: number; readonly permits: number };
  readonly refusals: Readonly<Record<string, number>>;
  /**
   * J1: two holders that exclude each other held a key at the same time, or the holders of permits outnumbered the
   * permits.
   */
  readonly overlaps: readonly string[];
  /** J2, J3: holders that exclude each other had the same token, or a later holder had a smaller token. */
  readonly tokenFaults: readonly string[];
  /** J4, J5: accesses that the register should have refused, and lost writes. */
  readonly registerFaults: readonly string[];
  /** Number of writes that the register refused: the token stopped a stale holder. */
  readonly refusedWrites: number;
  /** J6: rejections that no handler caught, and errors that nobody caught. */
  readonly unhandled: readonly string[];
  /** J6: calls that did not settle within their budget plus {@link GRACE_MS}. */
  readonly late: readonly string[];
  /** Longest time from the invocation of a call to its end, in milliseconds, without the stalls of its process. */
  readonly worstSettle: number;
  /** Longest time from the end of validity to the notice of the loss, in milliseconds, without stalls. */
  readonly worstNotice: number;
  /** Number of holders that were told of a loss. */
  readonly lost: number;
}

/** The events of one attempt. */
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

export type Stall = Extract<FaultEvent, { event: 'stall' }>;

/**
 * @param end - end of the test; a call that has not settled by then is judged as if it settled then
 * @param killed - names of killed processes, whose calls cannot settle
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

/** Time of the release, of the notice of the loss, or of the end of validity, whichever came first. */
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

/** Sums up the stalls of a process between two times, in milliseconds. */
export function stalledBetween(stalls: readonly Stall[], client: string, from: number, to: number): number {
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
