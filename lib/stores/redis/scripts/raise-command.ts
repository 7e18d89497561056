import type { Lease } from '../../../core/lease.js';
import type { LeaseNames } from '../lease-names.js';
import { Arguments, number, text } from './arguments.js';
import { type Packed, pack } from './script.js';

/** The arguments of every raise script. */
export const RAISE_ARGUMENTS = new Arguments<{ readonly lease: Lease; readonly token: number }>({
  n: number(({ lease }) => lease.keys.length),
  id: text(({ lease }) => lease.id),
  token: number(({ token }) => token),
});

/** Lua text for the marker, which is the last of KEYS, or nil if the node has none. */
export const markerAfter = (names: LeaseNames): string => `KEYS[${names.size} * n + 1]`;

/**
 * Packs the command of a raise script.
 *
 * @param further - the arguments after {@link RAISE_ARGUMENTS}
 */
export function packRaiseWith(
  names: LeaseNames,
  lease: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
  further: readonly (string | number)[] = [],
): Packed {
  const keys: string[] = [];
  names.push(keys, lease.keys, keyPrefix);
  if (marker !== undefined) keys.push(marker);
  const args: (string | number)[] = [];
  RAISE_ARGUMENTS.push(args, { lease, token });
  return pack(keys, [...args, ...further]);
}
