import { elapsedSince, type Instant, now } from '../../core/clock.js';
import {
  asError,
  ForeignValueError,
  GuardedNodeError,
  NotSentError,
  type YoungBecause,
} from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { LockKind } from '../../core/lock-mode.js';
import type { AcquireReply, AcquireRequest, ExchangeRequest, SlotWish, Tell } from '../../core/ports.js';
import { chunkByKeys } from './chunk-by-keys.js';
import { DeadConnectionError, isRefusal, mayConcernOne } from './connection/command-channel.js';
import { MovingSlotError } from './connection/moving-slot.js';
import { LONGEST_DEADLINE_MS } from './record.js';
import type { RedisNode } from './redis-node.js';
import type { ModeScripts } from './scripts/mode-scripts.js';
import { type Exchange, isExchange } from './scripts/exchange.js';
import { isForeign } from './scripts/lua.js';
import { nodeScripts } from './scripts/node-scripts.js';
import type { Packed } from './scripts/script.js';

/**
 * Milliseconds after a failed acquisition during which `isUnfit` is `true`. If there are several nodes, another node
 * then keeps the queue of waiters.
 */
const UNFIT_FOR_MS = 1_000;

const REPLACED = new Error('the connection was replaced before the answer came');

/** Sends acquisitions to one node, and reads its answers. */
export class Acquisitions {
  /**
   * Leases whose acquisition has no answer yet, each with a function to call after the answer. Used only with a client
   * of the application: after a lost connection that client may resend an acquisition after the release of the same
   * lease. The lease would then be stored, and nobody would release it (S15).
   */
  readonly #unanswered = new Map<Lease, (() => void) | undefined>();
  #toldTooYoung = false;
  /**
   * The time of the last acquisition that ended with an error; `undefined` if the last acquisition ended with a vote.
   */
  #unfitSince: Instant | undefined;

  /**
   * @param mayComeLater - called for a lease whose acquisition may have had no answer, with the deadline of the
   *   acquisition in milliseconds since 1970 on the node's clock (S27)
   */
  constructor(
    readonly node: RedisNode,
    readonly mayComeLater: (lease: Lease, deadline: number) => void,
  ) {}

  /** `true` if the last acquisition ended with an error, less than a second ago. */
  get isUnfit(): boolean {
    return this.#unfitSince !== undefined && elapsedSince(this.#unfitSince) < UNFIT_FOR_MS;
  }

  /** Sends acquisitions; see `LockStore.acquire`. */
  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    const { probe } = this.node;
    const batch = new AcquireBatch(this, requests, ordered, tell);
    if (probe.isFit) return batch.ask();
    probe.passed().then(
      () => batch.ask(),
      (error: unknown) => batch.fail(asError(error)),
    );
  }

  /** Sends an exchange as an acquisition of its own kind; see `LeaseExchange`. */
  exchange(request: ExchangeRequest): Promise<boolean> {
    const sent: Exchange = { ...request, proposal: 0, position: undefined };
    return new Promise((resolve, reject) => {
      this.acquire([sent], false, (_, reply) => {
        if (reply instanceof Error) reject(reply);
        else resolve(reply.granted);
      });
    });
  }

  /**
   * Calls `then` when the pending acquisition of the lease is answered. Returns `false` if no acquisition is pending.
   */
  whenAnswered(lease: Lease, then: () => void): boolean {
    if (!this.#unanswered.has(lease)) return false;
    this.#unanswered.set(lease, then);
    return true;
  }

  asked(lease: Lease): void {
    if (!this.node.opened) this.#unanswered.set(lease, undefined);
  }

  answered({ lease, heals }: AcquireRequest, reply: AcquireReply | Error): (() => void) | undefined {
    // A node that refuses to store a held lease again may still be fit to keep the queue.
    if (heals !== true && !(reply instanceof NotSentError))
      this.#unfitSince = reply instanceof Error ? now() : undefined;
    if (this.node.opened) return undefined;
    const afterwards = this.#unanswered.get(lease);
    this.#unanswered.delete(lease);
    return afterwards;
  }

  /** Turns a script's answer into the vote of the node. `wish` has the slots that were asked for. */
  voteOf(
    request: AcquireRequest,
    answer: unknown,
    wish: SlotWish | undefined,
    ordered: boolean,
  ): AcquireReply | Error {
    const { lease, guard } = request;
    const { channel, probe, waiters } = this.node;
    const wait = nodeScripts.acquire.tooYoungFor(answer);
    if (wait !== undefined) {
      const untilOldEnough = Math.ceil(guard - probe.age());
      const because = nodeScripts.acquire.youngBecause(answer);
      // The client has refused the votes of this command itself, and the guard has ended since.
      const wasYoung = wait > guard;
      return this.#tooYoung(untilOldEnough > 0 || wasYoung ? Math.max(1, untilOldEnough) : wait, because);
    }
    const reply =
      answer instanceof Error ? channel.explained(answer) : nodeScripts.asked(request).read(answer, wish);
    if (reply instanceof Error) return reply;
    this.#toldTooYoung = false;
    if (ordered && nodeScripts.acquire.showsWaiters(answer)) waiters.note(lease.keys);
    return reply;
  }

  /** The error of a server that restarted so recently that it must not vote (S12). */
  refusalOfGuard({ guard }: AcquireRequest): Error | undefined {
    const { probe } = this.node;
    const wait = Math.ceil(guard - probe.age());
    return probe.guarded && wait > 0 ? this.#tooYoung(wait, probe.cause) : undefined;
  }

  /** Makes the error of a node that must not vote yet (S12). Logs this error only once until the node votes. */
  #tooYoung(wait: number, because: YoungBecause | undefined): Error {
    const { name, context } = this.node;
    const error = new GuardedNodeError(wait, because);
    if (!this.#toldTooYoung) context.warnOnce(`${name} ${error.message}`);
    this.#toldTooYoung = true;
    return error;
  }
}

/** The requests of one turn of the event loop, usually in one command. A request is identified by its index. */
class AcquireBatch {
  readonly #asked = now();
  #isRepeated = false;
  /**
   * The requests that are sent without the queue, because the hash slot of their keys moves to another master. Only on a
   * Cluster, where each command has one request.
   */
  readonly #withoutQueue = new Set<number>();

  constructor(
    private readonly acquisitions: Acquisitions,
    private readonly requests: readonly AcquireRequest[],
    private readonly ordered: boolean,
    private readonly tell: Tell<AcquireReply>,
  ) {}

  ask(): void {
    this.#ask(
      this.requests.map((_, index) => index),
      true,
    );
  }

  fail(error: Error): void {
    for (const index of this.requests.keys()) this.#answered(index, error);
  }

  /**
   * Sends the requests. All requests of one command have the same kind of lock, the same ttl, the same time limit and
   * the same restart guard. All or none of them are plain (`isPlain`). Usually one command is enough.
   */
  #ask(indexes: readonly number[], again: boolean): void {
    const { isCluster } = this.acquisitions.node;
    let left = this.#withoutEnded(indexes);
    while (left.length > 0) {
      const first = this.#at(left[0] as number);
      const isLike = (index: number): boolean => isAlike(this.#at(index), first, this.ordered);
      const alike = left.every(isLike) ? left : left.filter(isLike);
      left = alike === left ? [] : left.filter((index) => !isLike(index));
      for (const part of chunkByKeys(alike, (index) => this.#at(index).lease, isCluster))
        this.#send(part, again);
    }
  }

  /**
   * Omits leases that have ended. Their release has already been sent, so a lease that is stored now would stay until
   * its ttl has passed (S15). The same is true of a lease that another thread has taken back, and may have released.
   */
  #withoutEnded(indexes: readonly number[]): readonly number[] {
    if (indexes.every((index) => this.#at(index).lease.mayBeStored)) return indexes;
    return indexes.filter((index) => {
      const { mayBeStored } = this.#at(index).lease;
      if (!mayBeStored) this.#answered(index, new NotSentError());
      return mayBeStored;
    });
  }

  /** @param again - `true` to ask again if the server reports that the deadline has passed */
  #send(indexes: readonly number[], again: boolean): void {
    const { channel, probe } = this.acquisitions.node;
    const { connection } = probe;
    const { canSend, losses } = channel;
    const requests =
      indexes.length === this.requests.length ? this.requests : indexes.map((index) => this.#at(index));
    const deadline = this.#deadlineOf(requests);
    const ordered = this.ordered && !this.#withoutQueue.has(indexes[0] as number);
    const packed = this.#pack(requests, deadline, ordered);
    // Copy the requested slots: the attempt may request other slots before the answer arrives.
    const wishes = requests.map(({ wish }) => wish);
    for (const { lease } of requests) this.acquisitions.asked(lease);
    const wanted = (): boolean => requests.every(({ lease }) => lease.mayBeStored);
    // A lease that was given back after an exchange stands in the place of a lease that is held: its release would free the
    // key. The one who asked for the exchange repeats the giving back (see redlock/exchange.ts).
    const unanswered = (): void => {
      if (isExchange(requests[0] as AcquireRequest)) return;
      for (const { lease } of requests) this.acquisitions.mayComeLater(lease, deadline);
    };
    channel.runOnce(this.#scripts(requests).script, packed, wanted).then(
      (reply) => {
        // The answer may belong to a second sending: clients of the application resend commands after a loss, and a
        // Cluster does so without a new connection of the whole client.
        if (losses !== channel.losses) unanswered();
        // The client itself has sent the command again on a new connection, to a server that was not checked yet. So
        // the answer is no vote.
        if (connection !== probe.connection) this.#repeat(indexes, REPLACED);
        else this.#take(indexes, nodeScripts.acquire.answers(reply, requests), wishes, again);
      },
      (thrown: unknown) => {
        const error = asError(thrown);
        if (losses !== channel.losses || (canSend && !isRefusal(error))) unanswered();
        this.#refused(indexes, error, again);
      },
    );
  }

  /** The deadline of the requests on the node's clock, in milliseconds since 1970 (S16). */
  #deadlineOf(requests: readonly AcquireRequest[]): number {
    const [{ limit }] = requests as [AcquireRequest];
    const left = Math.min(limit - elapsedSince(this.#asked), LONGEST_DEADLINE_MS);
    return Math.ceil((this.acquisitions.node.probe.clock.now() ?? 0) + left);
  }

  #scripts([first]: readonly AcquireRequest[]): ModeScripts['acquire'] {
    return nodeScripts.asked(first as AcquireRequest);
  }

  #pack(requests: readonly AcquireRequest[], deadline: number, ordered: boolean): Packed {
    const { context, channelBase, marker, probe } = this.acquisitions.node;
    const [{ guard }] = requests as [AcquireRequest];
    return this.#scripts(requests).pack(requests, {
      keyPrefix: context.keyPrefix,
      base: channelBase,
      ordered,
      marker,
      identity: probe.identity,
      wall: Date.now(),
      deadline,
      // A server that restarted from old data still has its old marker, so the marker does not show the restart. While
      // the server's uptime is shorter than the time of the restart guard, send a time for which no marker is old
      // enough.
      guard: !probe.guarded ? 0 : probe.age() < guard ? Number.MAX_SAFE_INTEGER : guard,
    });
  }

  #take(
    indexes: readonly number[],
    answers: readonly unknown[],
    wishes: readonly (SlotWish | undefined)[],
    again: boolean,
  ): void {
    this.acquisitions.node.probe.clock.learn(Number(answers[indexes.length]) / 1_000);
    const late: number[] = [];
    for (let at = 0; at < indexes.length; at++) {
      const index = indexes[at] as number;
      const request = this.#at(index);
      const answer = answers[at];
      // The server reports that the deadline has passed, but the caller still waits. So the estimate of the server's
      // clock was behind, for example after a long silence, a suspended machine or a step of the clock. This answer has
      // corrected the estimate.
      if (again && nodeScripts.acquire.isTooLate(answer) && elapsedSince(this.#asked) < request.limit)
        late.push(index);
      else this.#answered(index, this.acquisitions.voteOf(request, answer, wishes[at], this.ordered));
    }
    this.#ask(late, false);
  }

  /**
   * Sends requests once more, on the next connection, after their connection was lost. An acquisition can be repeated: a
   * node that has stored the lease grants it again. The requests keep their deadline (S16).
   */
  #repeat(indexes: readonly number[], lost: Error): void {
    const { channel, probe } = this.acquisitions.node;
    const fail = (reason: Error): void => {
      for (const index of indexes) this.#answered(index, reason);
    };
    if (this.#isRepeated) return fail(lost);
    const checked = async (): Promise<void> => {
      if (!(await channel.reconnected())) throw lost;
      await probe.passed();
    };
    checked().then(
      () => {
        const repeated = indexes.filter((index) => {
          const refusal = this.#refusalOfRepetition(this.#at(index), lost);
          if (refusal) this.#answered(index, refusal);
          return !refusal;
        });
        // Set this only now: the other commands of this batch were lost with the same connection.
        this.#isRepeated = true;
        this.#ask(repeated, true);
      },
      (error: unknown) => fail(asError(error)),
    );
  }

  #refusalOfRepetition(request: AcquireRequest, lost: Error): Error | undefined {
    if (elapsedSince(this.#asked) >= request.limit) return lost;
    // A server that restarted meanwhile must not vote (S12), even if it has the lease from before.
    return this.acquisitions.refusalOfGuard(request);
  }

  #refused(indexes: readonly number[], error: Error, again: boolean): void {
    if (error instanceof DeadConnectionError) return this.#repeat(indexes, error);
    if (error instanceof MovingSlotError && this.#canDoWithoutQueue(indexes[0] as number)) {
      for (const index of indexes) this.#withoutQueue.add(index);
      return this.#ask(indexes, again);
    }
    const isOfOne = indexes.length > 1 && mayConcernOne(error);
    for (const index of indexes) {
      if (isOfOne) this.#ask([index], again);
      else this.#answered(index, error);
    }
  }

  /**
   * `true` if the request is not sent without the queue yet. An exclusive lease without its queue needs only its records.
   * The order of the waiters is then not kept: their queue may be on the other master.
   */
  #canDoWithoutQueue(index: number): boolean {
    const { lease } = this.#at(index);
    if (!this.ordered || this.#withoutQueue.has(index) || lease.kind.mode !== 'exclusive') return false;
    this.acquisitions.node.moving.note(lease.keys);
    return true;
  }

  #answered(index: number, reply: AcquireReply | Error): void {
    const afterwards = this.acquisitions.answered(this.#at(index), reply);
    this.tell(index, reply instanceof Error && isForeign(reply) ? foreignValue(reply) : reply);
    afterwards?.();
  }

  #at(index: number): AcquireRequest {
    return this.requests[index] as AcquireRequest;
  }
}

function foreignValue(cause: Error): ForeignValueError {
  const advice =
    'the value stays as it is; change `keyPrefix`, or see what the value is before you delete it';
  return new ForeignValueError(`${cause.message}: ${advice}`, { cause });
}

function isSameKind(a: LockKind, b: LockKind): boolean {
  if (a === b) return true;
  return a.mode === b.mode && (a.mode !== 'permits' || a.permits === (b as typeof a).permits);
}

function isAlike(a: AcquireRequest, b: AcquireRequest, ordered: boolean): boolean {
  return (
    isSameKind(a.lease.kind, b.lease.kind) &&
    a.lease.ttl === b.lease.ttl &&
    a.limit === b.limit &&
    a.guard === b.guard &&
    (a.heals ?? false) === (b.heals ?? false) &&
    nodeScripts.acquire.isPlain(a, ordered) === nodeScripts.acquire.isPlain(b, ordered)
  );
}
