import { type Access, excludes, partOf } from './access.js';
import { LargestTokens } from './largest-tokens.js';

// What the judge says of those who held keys: J1 of the times, J2 and J3 of the tokens.

/** One key that somebody held, from the return of the call that acquired it to its end. */
export interface Holding extends Access {
  readonly who: string;
  readonly key: string;
  /** How many may hold the key, as its holder was told; only with permits. */
  readonly permits: number | undefined;
  readonly invoked: number;
  readonly returned: number;
  /** When it was released, lost, or its validity ended. */
  readonly end: number;
}

/** J1: no holder overlaps one that it excludes, and there are no more holders than permits. */
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
    // Where processes differ about their number, the larger one counts.
    const most = Math.max(...permits.map((each) => each.permits ?? 0));
    if (next.mode === 'permits' && permits.length > most) {
      faults.push(`J1: ${permits.map(named).join(', ')} held at the same time, of ${most} permits`);
    }
  });
  return faults;
}

/** That many did hold together: a test in which they never do shows nothing of it. */
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
 * J2: no two have the same token that exclude each other. J3: of such two, the one that was asked for after the other had
 * been returned has the larger one.
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
    // Both in the order of time, so that each is compared with the largest tokens returned before it was invoked.
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

/** Calls back for each that held at all, by the time of their return, with the others that held the key at that moment. */
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
