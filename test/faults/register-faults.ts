import { type Access, partOf, type RegisterReport } from './access.js';
import type { FaultEvent } from './events.js';
import { LargestTokens } from './largest-tokens.js';

// The judge's rules for the register and its readers: J4 and J5.

export function registerFaultsOf(
  events: readonly FaultEvent[],
  register: RegisterReport | undefined,
): string[] {
  return [...(register ?? []).flatMap(faultsOfKey), ...changedUnderReaders(events)];
}

function faultsOfKey({ key, accesses, parts }: RegisterReport[number]): string[] {
  const faults: string[] = [];
  const before = new LargestTokens<Access>();
  for (const access of accesses) {
    const largest = before.against(access);
    if (largest && access.token < largest.token) {
      faults.push(
        `J4: the register of ${key} accepted ${access.token} (${partOf(access)}) after ` +
          `${largest.token} (${partOf(largest)})`,
      );
    }
    before.add(access);
  }
  for (const { name, accepted, counter } of parts) {
    if (counter === accepted) continue;
    faults.push(
      `J5: the register of ${key} (${name}) accepted ${accepted} writes and counts to ${counter}: some were overwritten unseen`,
    );
  }
  return faults;
}

/** Finds readers whose two reads differ. No other client may write while a reader holds the lock. */
function changedUnderReaders(events: readonly FaultEvent[]): string[] {
  const faults: string[] = [];
  const firstReads = new Map<string, number>();
  for (const event of events) {
    if (event.event !== 'read' || event.value === undefined) continue;
    const reader = `${event.client}#${event.attempt}`;
    const place = `${reader} ${event.key}`;
    const first = firstReads.get(place);
    if (first === undefined) firstReads.set(place, event.value);
    else if (event.value !== first) {
      faults.push(
        `J5: ${reader} (${event.token}) read ${first} and then ${event.value} in the register of ${event.key}`,
      );
    }
  }
  return faults;
}
