import type { Contender } from './contender.js';
import { ours } from './ours.js';
import type { Kind } from './ours-app.js';

/** Permits of each key. Each lock has its own key, so a permit is always free. */
const PERMITS = 5;

function ofKind(name: string, kind: Kind, oneKey = false): Contender {
  return {
    ...ours,
    name,
    open: async (urls) => (await import('./ours-app.js')).openOurs(urls, kind, oneKey),
  };
}

export const exclusive = ofKind('exclusive', {});
export const shared = ofKind('shared', { mode: 'shared' });
export const permits = ofKind(`permits: ${PERMITS}`, { permits: PERMITS });
/** All locks in flight hold the same key. */
export const sharedKey = ofKind('shared, all the same key', { mode: 'shared' }, true);
export const permitsKey = ofKind('permits: 1000, all the same key', { permits: 1_000 }, true);

/** Our package with each kind of lock. Ratios refer to the first kind. */
export const KINDS: readonly Contender[] = [exclusive, shared, permits, sharedKey, permitsKey];
