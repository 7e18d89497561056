import { elapsedSince } from '../core/clock.js';
import { type NodeVote, RedlockError } from '../core/errors.js';
import { Lease } from '../core/lease.js';
import { LONGEST_PASS, makePass, ownerOfDetached } from '../core/pass.js';
import { quoted } from '../core/printable.js';
import type { Tick } from '../core/tick.js';
import { exchange, giveBack } from './exchange.js';
import type { Nodes } from './nodes.js';
import type { RestartGuard } from './restart-guard.js';
import { drop } from './stray-releases.js';
import { nodeTimeLimit, usableTtl } from './validity.js';

/** The parts of a `LeaseContext` that a detachment uses. */
interface DetachContext {
  readonly nodes: Nodes;
  readonly settings: {
    readonly owner: string;
    readonly driftFactor: number;
    readonly guard: RestartGuard;
    readonly keyPrefix?: string;
    readonly nodeTimeout?: number | undefined;
  };
  readonly busy: () => () => void;
}

/** A held lock, as far as its pass describes it. */
interface Detachable {
  readonly lease: Lease;
  readonly fencingToken: number;
  /** The ttl of its renewals. */
  readonly ttl: number;
  readonly maxHold: { readonly duration: number; readonly passed: number } | undefined;
  /** The name of the declared lock. */
  readonly lock: string | undefined;
  isHeld(): boolean;
  /** `true` while a nested call uses the lock, too. */
  isJoined(): boolean;
  /** Leases of earlier calls, which some nodes may still keep. */
  readonly earlier: readonly Lease[];
}

/** `'gone'`: a quorum no longer stores the lock. */
export type Detachment =
  | { readonly kind: 'detached'; readonly text: string; readonly lease: Lease }
  | { readonly kind: 'gone' | 'unconfirmed'; readonly votes: readonly NodeVote[]; readonly lease: Lease };

/**
 * Puts a lease that no process holds, and whose id only the pass leads to, in the place of a held lease. Requests that are
 * on their way for the held lease, such as renewals, find it no longer (S9). If no quorum confirms, the held lease gets
 * its place back.
 *
 * @param limit - milliseconds within which a node must answer
 * @throws RedlockError when the pass would be longer than `attach` accepts
 */
export async function detach(
  { nodes, settings, busy }: DetachContext,
  held: Detachable,
  limit: number,
): Promise<Detachment> {
  const { lease, fencingToken, ttl, maxHold, lock, earlier } = held;
  const { keys, kind, slots } = lease;
  const replaces = [lease.id, ...earlier.map((each) => each.id)];
  const { text, id } = makePass({
    ...{ keys, kind, slots, fencingToken, ttl, maxHold, lock },
    owner: settings.owner,
    minHold: lease.keepFor,
    tick: tickOf(lease),
    at: Date.now(),
    keyPrefix: settings.keyPrefix ?? '',
    nodes: nodes.stores.length,
    replaced: replaces,
  });
  if (text.length > LONGEST_PASS)
    throw notDetached(
      keys,
      `its pass would have ${text.length} characters, and ${LONGEST_PASS} are the most. Lock a key that stands for the ` +
        'whole group',
    );
  const detached = new Lease(keys, ownerOfDetached(settings.owner), ttl, undefined, kind, undefined, id);
  detached.slots = slots;
  const done = busy();
  const verdict = await exchange(nodes, detached, { replaces, limit, guard: settings.guard.duration });
  const isInTime =
    verdict.kind === 'exchanged' && elapsedSince(verdict.sent) < usableTtl(ttl, settings.driftFactor);
  if (isInTime && held.isHeld() && !held.isJoined()) {
    done();
    return { kind: 'detached', text, lease: detached };
  }
  const isHeld = held.isHeld();
  // The code under the lock was told of its loss, or has released it meanwhile. `minHold` goes on.
  if (!isHeld) detached.acquired(performance.now(), lease.keepFor);
  // With the little time that the end of a lock may leave, a slow node would refuse to give it back, each time (S16).
  const undo = { limit: nodeTimeLimit(ttl, settings.nodeTimeout), mayComeLater: verdict.mayComeLater };
  const undone = isHeld ? giveBack(nodes, detached, lease, undo) : drop(nodes, detached, undo);
  void undone.then(done);
  const votes = verdict.kind === 'unconfirmed' ? verdict.votes : [];
  return { kind: verdict.kind === 'gone' ? 'gone' : 'unconfirmed', votes, lease: detached };
}

/** The tick that the attaching process must store at its release, with the life that is left of it. */
function tickOf({ mark, tick }: Lease): Tick | undefined {
  return mark && tick && { ...mark, from: tick.from };
}

/** Makes the error of a lock that cannot be detached. */
export function notDetached(keys: readonly string[], why: string): RedlockError {
  return new RedlockError('LOCK_NOT_DETACHED', `The lock on ${quoted(keys)} is not detached: ${why}.`);
}
