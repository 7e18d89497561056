import type { WaiterId } from '../../../core/waiter-id.js';
import { LeaseNames } from '../lease-names.js';
import { markKey } from '../lock-key.js';
import { waiterName } from '../record.js';
import { Arguments, text } from './arguments.js';
import { DROP_MARK } from './queue.js';
import { type Packed, pack, script } from './script.js';

const NAMES = new LeaseNames({ mark: markKey });

const WAITER = new Arguments<WaiterId>({ waiter: text(waiterName) });

/**
 * Deletes the marks that HOLD_BACK set for a waiter, and no marks of other waiters.
 *
 * KEYS     the marks
 * ARGV     `WAITER`: the name of the waiter
 */
export const LET_PASS = script(`
${WAITER.locals(1)}
for i = 1, #KEYS do
  local mark = ${NAMES.at('mark', 'i')}
  ${DROP_MARK}
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link LET_PASS}. */
export function packLetPass(waiter: WaiterId, keyPrefix: string): Packed {
  const names: string[] = [];
  NAMES.push(names, waiter.keys, keyPrefix);
  const args: string[] = [];
  WAITER.push(args, waiter);
  return pack(names, args);
}
