import type { HolderRow, LockRow } from '../../lib/board/live/messages.js';
import { holdIn } from '../../lib/core/hold-name.js';
import { now } from './connection.js';
import { duration, soon } from './format.js';
import { Text } from './text.js';

// Parts of a lock that several views show.

/** The bar of the time left changes its colour below this fraction of the ttl: a holder that renews stays above. */
const LOW = 0.25;

/**
 * Shows the mode of a lock; for permits, the number of held permits; without a quorum, the number of nodes that have
 * the lock.
 */
export function Kind({ row: { mode, permits, holders, more = 0, nodes } }: { row: LockRow }) {
  if (mode === null) return <span class="badge bad">{`on ${nodes[0]} of ${nodes[1]} nodes`}</span>;
  if (permits !== undefined) return <span class="badge">{`${holders.length + more} of ${permits}`}</span>;
  return <span class="badge">{mode === 'shared' ? `shared, ${holders.length + more}` : mode}</span>;
}

/** Shows an owner in a short cell; of an operator's `hold` its end and its reason, which matter more than the process. */
export function Owner({ name }: { name: string }) {
  const hold = holdIn(name);
  if (!hold) return <Text of={name} />;
  return <Text of={`until ${soon(Date.parse(hold.until), now.value)}: ${hold.reason}`} />;
}

/** Number of waiters for a lock. A waiter is a call of this process, or another process that waits. */
export function waitersOf({ waiters, moreWaiters = 0 }: LockRow): number {
  return waiters.length + moreWaiters;
}

/** Shows the number of waiters, and for how long the first of them has waited. */
export function Waiting({ row }: { row: LockRow }) {
  const [first] = row.waiters;
  const count = waitersOf(row);
  if (!first) return null;
  return (
    <span class="badge waits-badge" title={count > 1 ? 'The first of them waits for this time.' : undefined}>
      {count === 1 ? '1 waits' : `${count} wait`}, <Since at={first.since} />
    </span>
  );
}

/** Shows the time since a moment. */
export function Since({ at }: { at: number }) {
  return <span class="time">{duration(now.value - at)}</span>;
}

/** Shows the time until the end of a lock, if it is not extended, and a bar for its fraction of the ttl. */
export function Left({ holder: { ends, ttl } }: { holder: HolderRow }) {
  if (ends === null) return <span class="time bad">no expiry</span>;
  const left = Math.max(0, ends - now.value);
  return (
    <span class="time-left" title={ttl === undefined ? undefined : `of a ttl of about ${duration(ttl)}`}>
      <span class="time">{duration(left)}</span>
      {ttl !== undefined && <Bar share={Math.min(1, left / ttl)} />}
    </span>
  );
}

/** A drawing of a fraction that is also there as text. */
function Bar({ share }: { share: number }) {
  return (
    <span class="left-bar" aria-hidden="true">
      <i class={share < LOW ? 'low' : ''} style={{ width: `${(share * 100).toFixed(1)}%` }} />
    </span>
  );
}
