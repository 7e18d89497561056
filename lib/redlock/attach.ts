import { elapsedSince, type Instant, now } from '../core/clock.js';
import { RedlockError } from '../core/errors.js';
import { Lease } from '../core/lease.js';
import type { ResolvedRetry } from '../core/lock-options.js';
import { type AbortWatch, onAbort } from '../core/on-abort.js';
import { type DetachedLock, ownerOfDetached, type Pass } from '../core/pass.js';
import { printable, quoted } from '../core/printable.js';
import type { AttemptContext } from './acquire.js';
import { checkCanExchange, exchange, giveBack, notConfirmed } from './exchange.js';
import { HeldLock } from './held-lock.js';
import type { HoldTerms } from './renewed-lock.js';
import { nodeTimeLimit, usableTtl } from './validity.js';

/** Parameters of {@link Redlock.attach}. */
export interface AttachTerms extends Pick<HoldTerms, 'renew' | 'maxBlocked'> {
  readonly retry: ResolvedRetry;
  /** Each of these signals ends the attempts, which then reject with the reason of the signal. */
  readonly signals: readonly AbortSignal[];
  /** Replaces an error before the caller gets it. */
  readonly explain?: (keys: readonly string[], error: unknown) => unknown;
}

/**
 * The number of attempts, one after the other, in which a quorum must lack the detached lock before the call fails. Of
 * several callers with one pass each can have some nodes for a moment, until all of them give their nodes back.
 */
const MOST_GONE = 3;

/**
 * Exchanges a detached lock for a lock of this process. An attempt without a quorum gives its nodes back, so that
 * another caller with the pass, or the next attempt, can have them.
 *
 * @throws RedlockError with the code LOCK_NOT_ATTACHED when the nodes do not keep the lock for this pass, and with
 * MAX_HOLD_REACHED when its `maxHold` has passed
 * @throws LockUnavailableError when no quorum confirmed an attempt; the reason of a signal
 */
export async function attach(
  context: AttemptContext,
  pass: Pass & DetachedLock,
  terms: AttachTerms,
): Promise<HeldLock> {
  const { nodes, settings, busy } = context;
  const { keys, ttl, kind, tick, slots } = pass;
  const { retry, signals } = terms;
  checkIsOfTheseNodes(context, pass);
  checkCanExchange(nodes, keys, 'LOCK_NOT_ATTACHED', 'attached');
  checkMayStillHold(pass);
  const began = now();
  const since = { ...began, wall: pass.at };
  const detached = new Lease(keys, ownerOfDetached(pass.owner), ttl, undefined, kind, since, pass.id);
  detached.slots = slots;
  const replaced = [detached];
  let timesGone = 0;
  /** Set when a node has shown that the text is a pass. */
  let former: readonly string[] = [];
  for (let attempts = 1; ; attempts++) {
    for (const signal of signals) if (signal.aborted) throw signal.reason;
    const left = Math.max(1, retry.timeout - elapsedSince(began));
    const nodeLimit = nodeTimeLimit(ttl, settings.nodeTimeout, nodes.isIdle);
    const limit = Math.min(nodeLimit, left);
    const lease = new Lease(keys, settings.owner, ttl, tick, kind);
    lease.slots = slots;
    // Anybody can make a text that looks like a pass, so its ttl counts for this exchange only.
    const guard = settings.guard.duration && Math.max(settings.guard.duration, ttl);
    const replaces = [...replaced.map(({ id }) => id), ...former];
    const done = busy();
    const verdict = await exchange(nodes, lease, { replaces, limit, guard, signals });
    const isAborted = signals.some(({ aborted }) => aborted);
    if (verdict.kind === 'exchanged' && !isAborted) {
      const lock = heldLock(context, lease, pass, terms, verdict.sent, replaced);
      if (lock) {
        done();
        return lock;
      }
    }
    // With the little time of a last attempt, a slow node would refuse to give the lock back, each time (S16).
    const undo = { limit: nodeLimit, mayComeLater: verdict.mayComeLater };
    void giveBack(nodes, lease, detached, undo).then(done);
    // A node on which this fails keeps the lease of this attempt, which the next attempt replaces, too. A node that missed
    // the detachment keeps the lease from before. Anybody can make a text with the id of a held lock, so that id counts
    // only when a node has shown that the text is a pass.
    replaced.push(lease);
    if (verdict.isFound) former = pass.replaced;
    if (isAborted) continue;
    timesGone = verdict.kind === 'gone' ? timesGone + 1 : 0;
    const pause = retry.delay * (0.5 + Math.random()) + retry.jitter * Math.random();
    const isLast = attempts >= retry.attempts || elapsedSince(began) + pause > retry.timeout;
    if (timesGone === MOST_GONE || (isLast && verdict.kind === 'gone')) throw notThere(pass);
    if (isLast) throw notConfirmed(keys, verdict.kind === 'unconfirmed' ? verdict.votes : [], 'attach');
    await paused(pause, signals);
  }
}

/**
 * Makes the handle, unless the ttl has been used up meanwhile (S4).
 *
 * @param replaced - the detached lease, and those of failed attempts
 */
function heldLock(
  context: AttemptContext,
  lease: Lease,
  pass: DetachedLock,
  { renew, maxBlocked }: AttachTerms,
  sent: Instant,
  replaced: Lease[],
): HeldLock | undefined {
  context.clocks.look();
  const taken = elapsedSince(sent);
  if (taken >= usableTtl(lease.ttl, context.settings.driftFactor)) return undefined;
  lease.acquired(sent.monotonic, pass.minHold);
  // A failed attempt that is given back once more is dropped now.
  for (const each of replaced) each.ended = true;
  const lock = new HeldLock(lease, pass.fencingToken, context, sent, taken, {
    renew,
    // Another caller with the pass may have had a node for a moment, and gives it back. One node has none to give back.
    ...(context.nodes.stores.length > 1 && { replaced }),
    ...(maxBlocked !== undefined && { maxBlocked }),
    ...(pass.lock !== undefined && { lock: pass.lock }),
    ...(pass.maxHold && { maxHold: pass.maxHold.duration, since: heldSince(pass, pass.maxHold.passed) }),
  });
  context.began(lock);
  return lock;
}

/**
 * The moment from which `maxHold` counts. Only wall clocks can be compared between machines. The nodes kept the lock for
 * one ttl, as a rule, so a wrong clock changes the moment by no more than that.
 */
function heldSince({ at, ttl }: DetachedLock, passed: number): Instant {
  const { monotonic, wall } = now();
  const held = passed + Math.min(Math.max(wall - at, 0), ttl);
  return { monotonic: monotonic - held, wall: wall - held };
}

/**
 * A lock goes past its `maxHold` by one ttl at most, whether it is extended or changes hands.
 *
 * @throws RedlockError when its `maxHold` has passed
 */
function checkMayStillHold(pass: DetachedLock): void {
  const { keys, maxHold } = pass;
  if (!maxHold || elapsedSince(heldSince(pass, maxHold.passed)) < maxHold.duration) return;
  throw new RedlockError(
    'MAX_HOLD_REACHED',
    `The lock on ${quoted(keys)} is not attached: its \`maxHold\` of ${maxHold.duration} ms has passed. Give the lock a longer ` +
      '`maxHold`, or acquire another lock, and look what was done meanwhile.',
  );
}

/** @throws RedlockError when the module of the pass has other nodes or another prefix */
function checkIsOfTheseNodes({ nodes, settings }: AttemptContext, pass: DetachedLock): void {
  const { keyPrefix = '' } = settings;
  const { length } = nodes.stores;
  if (pass.keyPrefix === keyPrefix && pass.nodes === length) return;
  const shown = (prefix: string, count: number): string =>
    `\`keyPrefix: '${printable(prefix)}'\` and ${count} nodes`;
  throw new RedlockError(
    'LOCK_NOT_ATTACHED',
    `The lock on ${quoted(pass.keys)} is not attached: its pass is from a module with ` +
      `${shown(pass.keyPrefix, pass.nodes)}, and this one has ${shown(keyPrefix, length)}. Attach it with a module ` +
      'that has the same nodes and prefix.',
  );
}

function notThere({ keys, ttl }: DetachedLock): RedlockError {
  return new RedlockError(
    'LOCK_NOT_ATTACHED',
    `The lock on ${quoted(keys)} is not attached: a quorum of nodes does not keep it for this pass. It was attached ` +
      `already, it was released by force, its ttl of ${ttl} ms has passed since the detachment, or the nodes are others. ` +
      'Acquire another lock, and look what was done meanwhile.',
  );
}

/** Waits, and no longer than until a signal aborts. */
function paused(milliseconds: number, signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    let watch: AbortWatch | undefined;
    const end = (): void => {
      clearTimeout(timer);
      watch?.stop();
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    for (const signal of signals) watch = onAbort(signal, { aborted: end }, watch);
  });
}
