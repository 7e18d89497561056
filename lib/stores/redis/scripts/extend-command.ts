import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import type { LeaseNames } from '../lease-names.js';
import { Arguments, number, text } from './arguments.js';
import { type Packed, pack } from './script.js';

/** The arguments of an extension before those of its leases: the life of the records in milliseconds. */
export const LIFE = new Arguments<number>({ life: text((ttl) => ttl + LINGER_MS) });

/** The arguments of each lease. */
export const EXTENDED = new Arguments<Lease>({
  id: text(({ id }) => id),
  n: number(({ keys }) => keys.length),
});

/** The reply is a text with one of these characters for each lease. */
const [HELD, LOST] = ['1', '0'];

/** Lua text for the character of a lease; `held` is Lua text that is true if the lease is held and was extended. */
export const outcomeOf = (held: string): string => `${held} and '${HELD}' or '${LOST}'`;

/** Packs the command of an extend script. */
export function packExtendWith(
  names: LeaseNames,
  leases: readonly Lease[],
  ttl: number,
  keyPrefix: string,
): Packed {
  const keys: string[] = [];
  const args: (string | number)[] = [];
  LIFE.push(args, ttl);
  for (const lease of leases) {
    names.push(keys, lease.keys, keyPrefix);
    EXTENDED.push(args, lease);
  }
  return pack(keys, args);
}

/** `true` if the lease with this index is held and was extended, according to the reply of an extend script. */
export function isExtended(reply: unknown, index: number): boolean {
  return String(reply)[index] === HELD;
}
