import { type Access, excludes, partOf } from './access.js';
import { LargestTokens } from './largest-tokens.js';

// The judge's rules for holders of keys: J1 for the times, J2 and J3 for the tokens.

/** The time during which one attempt held one key: from the return of the acquisition to `end`. */
export interface Holding extends Access {
  readonly who: string;
  readonly key: string;
  /** Number of permits that the holder asked for; set only for permits. */
  readonly permits: number | undefined;
  readonly invoked: number;
  readonly returned: number;
  /** Time of the release, of the notice of the loss, or of the end of validity, whichever came first. */
  readonly end: number;
}

/**
 * Finds violations of J1. J1: two holders that exclude each other never overlap, and the holders of permits never
 * outnumber the permits.
 */
export function overlapsOf(holdings: readonly Holding[]): string[] {
  const faults: string[] = [];
  forEachReturn(holdings, (next, others) => {
    if (next.mode === 'permits' && !isSlot(next.slot, next.permits)) {
      faults.push(`J1: ${next.who} has the slot ${next.slot} of ${next.permits} permits`);
    }
    for (const before of others) {
      if (!excludes(before, next)) continue;
      const by = (Math.min(before.end, next.end) - next.returned).toFixed(1);
      faults.push(`J1: ${named(next)} held beside ${named(before)} for ${by} ms`);
    }
    const permits = permitsAmong([...others, next]);
    // Processes may ask for different numbers of permits. The larger number counts.
    const most = Math.max(...permits.map((each) => each.permits ?? 0));
    if (next.mode === 'permits' && permits.length > most) {
      faults.push(`J1: ${permits.map(named).join(', ')} held at the same time, of ${most} permits`);
    }
  });
  return faults;
}

/**
 * Returns the largest number of readers, and of holders of permits, at the same time. A number below two means that no
 * two such holders overlapped, so the run tested nothing about them.
 */
export function mostTogether(holdings: readonly Holding[]): { shared: number; permits: number } {
  const most = { shared: 0, permits: 0 };
  forEachReturn(holdings, (next, others) => {
    if (next.mode === 'exclusive') return;
    const together = others.filter(({ mode }) => mode === next.mode).length + 1;
    most[next.mode] = Math.max(most[next.mode], together);
  });
  return most;
}

/**
 * Finds violations of J2 and J3. J2: two holders that exclude each other have different tokens. J3: if a client asked
 * for the second lock after the first acquisition had returned, the second lock has the larger token.
 */
export function tokenFaultsOf(holdings: readonly Holding[]): string[] {
  const faults: string[] = [];
  for (const ofKey of byKey(holdings)) {
    const byToken = new Map<number, Holding[]>();
    for (const holding of ofKey) {
      const same = byToken.get(holding.token) ?? [];
      byToken.set(holding.token, [...same, holding]);
      const twin = same.find((other) => excludes(other, holding));
      if (twin) faults.push(`J2: ${twin.who} and ${holding.who} were both given ${holding.token}`);
    }
    // Both loops go forward in time, so that each holding is compared with the largest tokens returned before its
    // invocation.
    const before = new LargestTokens<Holding>();
    let returned = 0;
    for (const holding of ofKey.toSorted((a, b) => a.invoked - b.invoked)) {
      while (returned < ofKey.length && ofKey[returned]!.returned < holding.invoked) {
        before.add(ofKey[returned++]!);
      }
      const largest = before.against(holding);
      if (largest && holding.token < largest.token) {
        faults.push(
          `J3: ${holding.who} was given ${holding.token} after ${largest.who} had ${largest.token}`,
        );
      }
    }
  }
  return faults;
}

/**
 * Calls `callback` for each holding, in the order in which the acquisitions returned. Also passes the other holdings of
 * the key at that time.
 */
function forEachReturn(
  holdings: readonly Holding[],
  callback: (next: Holding, others: readonly Holding[]) => void,
): void {
  for (const ofKey of byKey(holdings)) {
    let present: Holding[] = [];
    for (const next of ofKey) {
      if (next.end <= next.returned) continue;
      present = present.filter(({ end }) => end > next.returned);
      callback(next, present);
      present.push(next);
    }
  }
}

/** Groups holdings by key. Each group is sorted by the time at which the acquisition returned. */
function byKey(holdings: readonly Holding[]): Holding[][] {
  const keys = new Map<string, Holding[]>();
  for (const holding of holdings) {
    const ofKey = keys.get(holding.key);
    if (ofKey) ofKey.push(holding);
    else keys.set(holding.key, [holding]);
  }
  return [...keys.values()].map((ofKey) => ofKey.toSorted((a, b) => a.returned - b.returned));
}

function permitsAmong(holdings: readonly Holding[]): Holding[] {
  return holdings.filter(({ mode }) => mode === 'permits');
}

function isSlot(slot: number | undefined, permits = 0): boolean {
  return slot !== undefined && Number.isInteger(slot) && slot >= 0 && slot < permits;
}

function named(holding: Holding): string {
  return `${holding.who} (${partOf(holding)}, ${holding.token})`;
}
