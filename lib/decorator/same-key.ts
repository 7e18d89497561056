import { canHoldTogether, joins, type LockMode } from '../core/lock-mode.js';
import { modeOf } from '../core/lock-policy.js';
import { quoted } from '../core/printable.js';
import type { LockSite } from '../service/lock-site.js';

/**
 * Refuses a decorator if a decorator below it on the same method locks the same key: each call would hold the key and wait
 * for itself. Decorators are applied from the lowest up, so the new decorator is the outer one. Keys that functions compute
 * are not known here; a call that waits for itself is warned of.
 *
 * @param inner - the decorators below
 * @throws TypeError
 */
export function refuseSameKey(inner: readonly LockSite[], outer: LockSite): void {
  const held = keysAndMode(outer);
  for (const below of inner) {
    const asked = keysAndMode(below);
    if (!held || !asked || below.instance !== outer.instance) continue;
    const same = asked.keys.filter((key) => held.keys.includes(key));
    if (same.length === 0 || canHoldTogether(held.mode, asked.mode)) continue;
    if (below.reentrant && joins(asked.mode, held.mode) && same.length === asked.keys.length) continue;
    throw new TypeError(
      `${outer.place}: two decorators of this method lock ${quoted(same)}, so each call would wait for itself. Remove one of ` +
        'the two; or give the lower one `reentrant: true`',
    );
  }
}

function keysAndMode({ what }: LockSite): { keys: readonly string[]; mode: LockMode } | undefined {
  if (what.kind === 'leader') return undefined;
  const keys = what.kind === 'declared' ? what.lock.keys : what.keys;
  return keys && { keys, mode: what.kind === 'declared' ? modeOf(what.lock.policy) : what.mode };
}
