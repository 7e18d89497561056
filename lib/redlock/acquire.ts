import { type Answer, askAll } from './fan-out.js';
import { Lease } from '../core/lease.js';
import { elapsedSince, now } from '../core/clock.js';
import { LockHeldError, LockUnavailableError, type NodeVote } from '../core/errors.js';
import { seedFor, tokenOf } from '../core/fencing-token.js';
import { HeldLock, type HoldTerms, type RedlockSettings, type LeaseContext } from './held-lock.js';
import type { AcquireReply, Holder, LockStore, QueuePosition } from '../core/ports.js';
import { WakeableSleep } from './wait/wakeable-sleep.js';
import { countOf, freeAfter, quorumOf } from './quorum.js';
import { SlotList } from './slot-list.js';
import type { Tick } from '../core/tick.js';
import { nodeTimeLimit, usableTtl } from './validity.js';
import { Watchdog } from './watchdog.js';

/** What an attempt is to lock. */
export interface AcquireRequest extends HoldTerms {
  readonly keys: readonly string[];
  readonly ttl: number;
  /** Milliseconds that the keys are kept at least; 0 by default. */
  readonly minHold?: number;
  /** The firing of a schedule that the lock is for: refused when it has run already. */
  readonly tick?: Tick | undefined;
  /** Any of them ends the attempt with its reason. */
  readonly signals: readonly AbortSignal[];
}

/** How an attempt goes about it. */
export interface AttemptPlan {
  /** Milliseconds that are left for it. */
  readonly left: number;
  /** The node that keeps the order of those who wait. */
  readonly gate: LockStore;
  readonly order: QueuePosition;
  /**
   * Ask the gate alone first, and the others only when it grants: where others wait, asking everybody costs more and
   * ends in split votes.
   */
  readonly gateFirst: boolean;
}

/** Asks nodes to store the claim, for as long as a node may take and the attempt has left. */
type Poll = (
  nodes: readonly LockStore[],
  decided: (answers: readonly Answer<AcquireReply>[]) => boolean,
) => Promise<readonly Answer<AcquireReply>[]>;

export type Outcome = HeldLock | LockHeldError | LockUnavailableError;

/** What became of an attempt. */
export interface AttemptResult {
  readonly outcome: Outcome;
  /**
   * What the gate said: when it granted, it took the place of the one who asked out of its queue; when it refused, it put
   * it in. `'pending'`: the other votes had decided before its vote came.
   */
  readonly atGate: 'granted' | 'refused' | 'failed' | 'pending';
  /** Nobody has a quorum: it makes sense to try again soon. */
  readonly split: boolean;
  /** A node had less time to answer than it may take, so its silence says nothing. */
  readonly cutShort: boolean;
  /** It was granted, and the next waiter of the process is the first in line. */
  readonly nextIsFirst?: boolean;
}

/**
 * How often, at most, an attempt that the gate granted asks again where it was refused by somebody without a quorum:
 * a holder whose release is still under way, or another attempt, which the gate has refused and which gives way.
 */
const MOST_ROUNDS = 4;

/** How long the next in line is kept from trying after an attempt that came to nothing, in milliseconds. */
const AFTER_SPLIT_VOTE_MS = 20;
const AFTER_HELD_ELSEWHERE_MS = 200;

/** Single attempts to acquire a lock on a quorum of nodes, and the locks that came of them. */
export class Attempts {
  /** The locks that are held at present. */
  readonly held = new SlotList<'heldSlot', HeldLock>('heldSlot');
  /** Releases of attempts that failed, still under way. */
  readonly #undoing = new Set<Promise<unknown>>();

  readonly #upkeep: LeaseContext;

  constructor(private readonly settings: RedlockSettings) {
    this.#upkeep = {
      settings,
      watchdog: new Watchdog(settings),
      ended: (lock) => this.held.delete(lock),
    };
  }

  /** Milliseconds that one node has to answer. */
  nodeLimit(ttl: number): number {
    return nodeTimeLimit(ttl, this.settings.nodeTimeout);
  }

  /** @throws a signal's reason; other failures are returned */
  async make(wish: AcquireRequest, { left, gate, order, gateFirst }: AttemptPlan): Promise<AttemptResult> {
    const { keys, ttl, renew, minHold = 0, maxHold, tick, signals } = wish;
    for (const signal of signals) signal.throwIfAborted();
    const { nodes, owner, driftFactor, guard } = this.settings;
    const quorum = quorumOf(nodes.length);
    const claim = new Lease(keys, owner, ttl, tick);
    const nodeLimit = this.nodeLimit(ttl);
    let cutShort = false;
    // Every phase takes from the time that is left for all of them (S8).
    const timeLeft = (): number => {
      const rest = left - elapsedSince(sent);
      cutShort ||= rest < nodeLimit;
      return Math.max(1, Math.min(nodeLimit, rest));
    };
    // A single node has nobody to agree with on where a counter starts.
    const alone = nodes.length === 1;
    const seed = alone ? 0 : seedFor(nodes.map((node) => node.time()));
    const floor = alone ? 'fine' : 'coarse';
    const poll: Poll = (some, decided) => {
      const limit = timeLeft();
      const ask = (node: LockStore): Promise<AcquireReply> =>
        node.acquire(claim, {
          limit,
          guard: guard.duration,
          seed,
          floor,
          order: node === gate ? order : undefined,
        });
      return askAll(some, limit, ask, decided, signals);
    };
    const sent = now();

    let answers: readonly Answer<AcquireReply>[] = [];
    if (gateFirst) answers = await poll([gate], () => false);
    const shut = gateFirst && !answers.some(isGranted);
    if (!shut) {
      const before = answers;
      const rest = gateFirst ? nodes.filter((node) => node !== gate) : nodes;
      const decided = (soFar: readonly Answer<AcquireReply>[]): boolean => {
        const all = before.length > 0 ? [...before, ...soFar] : soFar;
        // When votes are split, the gate decides who asks again.
        const split = !all.some(({ node }) => node === gate) && !isHeldByOne(all, quorum);
        const open = split && countOf(all, isGranted) < quorum && !all.some(isRan);
        return isDecided(all, nodes.length, quorum) && !open;
      };
      const after = await poll(rest, decided);
      answers = before.length > 0 ? [...before, ...after] : after;
      if (mayAskAgain(answers, gate, quorum)) {
        answers = await this.#askAgain(answers, gate, poll, timeLeft, signals);
      }
    }

    const granting = answers.filter(isGranted);
    const atGate = answerOf(gate, answers);
    // One node that knows of it is enough: only a lock that was acquired leaves that behind.
    const ran = answers.find(isRan);
    let token: number | undefined;
    if (granting.length >= quorum && !ran) {
      // The largest that was granted: mostly a quorum has it already, else the others are raised to it.
      const { token: largest, agreeing } = tokenOf(granting.map(({ reply }) => reply.counter));
      const agreed = agreeing >= quorum || (await this.#raise(claim, largest, granting, timeLeft(), signals));
      if (agreed) token = largest;
    }

    const aborted = signals.find((signal) => signal.aborted);
    // S4: checked after the last phase, as an acquisition that took longer than the lease is worth nothing.
    const inTime = elapsedSince(sent) < usableTtl(ttl, driftFactor);
    if (token !== undefined && inTime && !aborted) {
      claim.acquired(sent.monotonic, minHold);
      const lock = new HeldLock(claim, token, this.#upkeep, sent, { renew, maxHold });
      this.held.add(lock);
      const nextIsFirst = granting.some(({ reply }) => reply.nextIsFirst);
      return { outcome: lock, atGate, split: false, cutShort, nextIsFirst };
    }

    const asked = shut ? [gate] : nodes;
    this.#undo(claim, asked, answers, nodeLimit);
    if (aborted) throw aborted.reason;
    if (ran) {
      const { owner: runner, remaining } = ran.reply.holder;
      const outcome = new LockHeldError(keys, runner, remaining, { ranTick: tick?.at });
      return { outcome, atGate, split: false, cutShort };
    }
    const tooLate = inTime
      ? 'the nodes that granted it did not agree on a fencing token in time'
      : `the nodes took ${Math.round(elapsedSince(sent))} ms to answer, which uses up the ttl of ${ttl} ms`;
    const outcome = shut
      ? shutOut(keys, answers)
      : granting.length < quorum
        ? failure(keys, nodes, answers, quorum)
        : new LockUnavailableError(keys, tooLate, votesOf(nodes, answers));
    return { outcome, atGate, split: !shut && !isHeldByOne(answers, quorum), cutShort };
  }

  /** Something is under way that must have ended before the nodes are closed. */
  track(work: Promise<unknown>): void {
    const settled = work.catch(() => undefined);
    this.#undoing.add(settled);
    void settled.then(() => this.#undoing.delete(settled));
  }

  /** Resolves when what was under way has ended. */
  async settled(): Promise<void> {
    await Promise.all(this.#undoing);
  }

  /**
   * The gate decides who goes on when votes are split: the attempt that it granted asks the others again, which soon
   * are free, while attempts that it refused give way. The same claim is asked for again only where it was refused,
   * and so not stored, which is the same as asking late.
   */
  async #askAgain(
    first: readonly Answer<AcquireReply>[],
    gate: LockStore,
    poll: Poll,
    timeLeft: () => number,
    signals: readonly AbortSignal[],
  ): Promise<readonly Answer<AcquireReply>[]> {
    const { length } = this.settings.nodes;
    const quorum = quorumOf(length);
    const started = now();
    const patience = timeLeft();
    let answers = first;
    for (let round = 0; round < MOST_ROUNDS; round++) {
      if (!mayAskAgain(answers, gate, quorum)) break;
      if (elapsedSince(started) > patience || signals.some(({ aborted }) => aborted)) break;
      const refusing = answers.filter(isRefused).map(({ node }) => node);
      await new WakeableSleep().for(Math.min(2 ** round * (0.5 + Math.random() / 2), timeLeft()), []);
      const before = answers.filter(({ node }) => !refusing.includes(node));
      const again = await poll(refusing, (soFar) =>
        isDecided([...before, ...soFar], before.length + refusing.length, quorum),
      );
      // A node that was asked again and has not answered may store the claim yet: its first refusal counts no more (S6).
      answers = [...before, ...again];
    }
    return answers;
  }

  /** Lifts the fencing counters of nodes that hold the claim to `token`; resolves to whether a quorum has it then. */
  async #raise(
    claim: Lease,
    token: number,
    granting: readonly Granting[],
    limit: number,
    signals: readonly AbortSignal[],
  ): Promise<boolean> {
    const quorum = quorumOf(this.settings.nodes.length);
    const raised = await askAll(
      granting.map(({ node }) => node),
      limit,
      (node) => node.raise(claim, token),
      (soFar) => countRaised(soFar) >= quorum || soFar.length - countRaised(soFar) > granting.length - quorum,
      signals,
    );
    return countRaised(raised) >= quorum;
  }

  /**
   * Releases a claim that came to nothing, on every node that may have stored it: the minority that granted it, and
   * those whose answer is not known (S6). A node that refused has stored nothing.
   */
  #undo(
    claim: Lease,
    asked: readonly LockStore[],
    answers: readonly Answer<AcquireReply>[],
    limit: number,
  ): void {
    claim.ended = true;
    const refused = new Set(answers.filter(isRefused).map(({ node }) => node));
    const suspects = asked.filter((node) => !refused.has(node));
    if (suspects.length === 0) return;
    // The next in line would fare no better at once, and tell the one after it, and so on as fast as the nodes answer.
    const heldElsewhere = isHeldByOne(answers, quorumOf(this.settings.nodes.length));
    const pause = heldElsewhere ? AFTER_HELD_ELSEWHERE_MS : AFTER_SPLIT_VOTE_MS;
    const after = Math.ceil(pause * (0.5 + Math.random() / 2));
    this.track(
      askAll(
        suspects,
        limit,
        (node) => node.release(claim, after),
        () => false,
      ),
    );
  }
}

/**
 * Enough answers to know that the lock is won; or that it cannot be won and whether because others hold it or because
 * too few nodes answer. A tie is decided like everything else (S1).
 */
function isDecided(answers: readonly Answer<AcquireReply>[], nodeCount: number, quorum: number): boolean {
  const pending = nodeCount - answers.length;
  if (answers.some(isRan)) return true;
  const granted = countOf(answers, isGranted);
  if (granted >= quorum) return true;
  if (granted + pending >= quorum) return false;
  const fit = countOf(answers, ({ error }) => !error);
  return fit >= quorum || fit + pending < quorum;
}

/** Whether the gate granted, no quorum did, and with those that refused there could be one. */
function mayAskAgain(answers: readonly Answer<AcquireReply>[], gate: LockStore, quorum: number): boolean {
  const granted = countOf(answers, isGranted);
  return (
    granted < quorum &&
    answers.some((answer) => answer.node === gate && isGranted(answer)) &&
    !answers.some(isRan) &&
    granted + countOf(answers, isRefused) >= quorum
  );
}

function failure(
  keys: readonly string[],
  nodes: readonly LockStore[],
  answers: readonly Answer<AcquireReply>[],
  quorum: number,
): LockHeldError | LockUnavailableError {
  const fit = answers.flatMap((answer) => (answer.error ? [] : [answer.reply]));
  const [holder] = holdersIn(answers);
  if (holder && fit.length >= quorum) {
    const remaining = fit.map((reply) => (reply.granted ? 0 : reply.holder.remaining));
    return new LockHeldError(keys, holder.owner, freeAfter(remaining, quorum));
  }
  const without = answers.length - fit.length;
  const reason = `${quorum} of ${nodes.length} nodes must agree, and ${without} gave no vote`;
  return new LockUnavailableError(keys, reason, votesOf(nodes, answers));
}

/** The gate alone was asked, and did not grant. */
function shutOut(
  keys: readonly string[],
  answers: readonly Answer<AcquireReply>[],
): LockHeldError | LockUnavailableError {
  const [holder] = holdersIn(answers);
  if (holder) return new LockHeldError(keys, holder.owner, holder.remaining);
  const gate = answers.map(({ node }) => node);
  return new LockUnavailableError(
    keys,
    'the node at which waiters queue gave no vote',
    votesOf(gate, answers),
  );
}

function answerOf(gate: LockStore, answers: readonly Answer<AcquireReply>[]): AttemptResult['atGate'] {
  const answer = answers.find(({ node }) => node === gate);
  if (!answer) return 'pending';
  if (answer.error) return 'failed';
  return answer.reply.granted ? 'granted' : 'refused';
}

/** Whether one claim is known to be stored on a quorum of nodes. */
function isHeldByOne(answers: readonly Answer<AcquireReply>[], quorum: number): boolean {
  const holders = holdersIn(answers);
  return holders.some(({ id }) => countOf(holders, (other) => other.id === id) >= quorum);
}

function holdersIn(answers: readonly Answer<AcquireReply>[]): Holder[] {
  return answers.flatMap((answer) => (answer.error || answer.reply.granted ? [] : [answer.reply.holder]));
}

function votesOf(nodes: readonly LockStore[], answers: readonly Answer<AcquireReply>[]): NodeVote[] {
  return nodes.map((node) => {
    const answer = answers.find((candidate) => candidate.node === node);
    if (!answer) return { node: node.name, vote: 'pending' };
    if (answer.error) return { node: node.name, vote: 'error', error: answer.error };
    return { node: node.name, vote: answer.reply.granted ? 'granted' : 'held' };
  });
}

/** The answer of a node that granted the claim. */
type Granting = Answer<AcquireReply> & {
  readonly reply: { readonly granted: true; readonly counter: number };
};

function isGranted(answer: Answer<AcquireReply>): answer is Granting {
  return !answer.error && answer.reply.granted;
}

/** The answer of a node that knows that the tick has run. */
type Ran = Answer<AcquireReply> & { readonly reply: { readonly ran: true; readonly holder: Holder } };

function isRan(answer: Answer<AcquireReply>): answer is Ran {
  return !answer.error && !answer.reply.granted && answer.reply.ran === true;
}

function countRaised(answers: readonly Answer<boolean>[]): number {
  return countOf(answers, (answer) => !answer.error && answer.reply);
}

function isRefused(answer: Answer<AcquireReply>): boolean {
  return !answer.error && !answer.reply.granted;
}
