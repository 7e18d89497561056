import { permitsOf } from '../../core/admission.js';
import { now } from '../../core/clock.js';
import { NotSentError } from '../../core/errors.js';
import type { AcquireReply, AcquireRequest, QueuePosition } from '../../core/ports.js';
import { type Asked, permitsSeen, type QueueEntry, type Round, timeLeft, transactionOf } from './attempt.js';
import type { Bases } from './bases.js';
import { type Departures, QUEUE_SECONDS } from './departures.js';
import { type EtcdLease, type EtcdLeases, secondsOf } from './etcd-leases.js';
import { didNothing, GatewayError } from './gateway.js';
import type { Hold, Holds } from './holds.js';
import { holderName, type Names } from './names.js';
import { entriesAt, get, revisionOf, type TxnReply } from './protocol.js';
import { type RefusalContext, Refusals } from './refusals.js';
import type { Releases } from './releases.js';
import type { SlotHints } from './slot-hints.js';

/**
 * Largest number of rounds of a request to acquire. Another round follows when the reason for the refusal in the last
 * round no longer exists.
 */
const MOST_ROUNDS = 16;

export interface AcquisitionContext extends RefusalContext {
  /** The etcd leases of queue entries, separate from the etcd leases of locks. */
  readonly queueLeases: EtcdLeases;
  readonly names: Names;
  readonly holds: Holds;
  readonly releases: Releases;
  readonly bases: Bases;
  readonly departures: Departures;
  readonly hints: SlotHints;
}

/**
 * Stores each lease in one transaction. The transaction first checks whether etcd has a key of a holder, a waiter or a
 * tick that excludes the lease. If there is one, the transaction reads these keys and stores nothing.
 */
export class Acquisitions {
  readonly #refusals: Refusals;

  constructor(private readonly context: AcquisitionContext) {
    this.#refusals = new Refusals(context);
  }

  async acquire(request: AcquireRequest, ordered: boolean): Promise<AcquireReply> {
    const { names, holds, leases } = this.context;
    const { lease } = request;
    const asked: Asked = {
      request,
      ordered,
      since: now(),
      keys: lease.keys.map((key) => names.of(key)),
      came: performance.now() - (request.position?.waited ?? 0),
    };
    if (holds.hasEnded(lease)) throw new Error('this lock was stored before, and has ended');
    const hold = holds.of(lease);
    if (hold) {
      const reply = await this.#again(asked, hold);
      if (reply) return reply;
    }
    const seconds = secondsOf(lease.ttl);
    const etcdLease =
      hold?.etcdLease ??
      (request.renewed === true
        ? await leases.shared(seconds, timeLeft(asked))
        : await leases.own(seconds, timeLeft(asked)));
    return this.#insist(asked, etcdLease);
  }

  async #insist(asked: Asked, first: EtcdLease): Promise<AcquireReply> {
    const { bases, leases, queueEntries, hints } = this.context;
    const { request, ordered, keys } = asked;
    const { lease, position, wish } = request;
    const { kind } = lease;
    let etcdLease = first;
    /** `true` while no key is attached to the etcd lease, so that another attempt can use it. */
    let isUnused = true;
    const hinted =
      kind.mode === 'permits' && !wish ? lease.keys.map((key) => hints.take(key, kind.permits)) : undefined;
    let slots = wish?.slots ?? hinted ?? keys.map(() => 0);
    let passes = !ordered;
    let looks = 0;
    try {
      for (let count = 0; count < MOST_ROUNDS; count++) {
        const base = await bases.get(timeLeft(asked));
        const round: Round = {
          base,
          etcdLease,
          slots,
          collided: looks > 0,
          passes,
          names: keys.map((key, index) => holderName(key, kind.mode, lease.id, slots[index])),
          entry: ordered && position ? await this.#entryFor(asked, position) : undefined,
          next: position && queueEntries.nextAt(keys[0] ?? '', position),
        };
        // Do not store a lease that has ended: it would stay until its ttl has passed (S15).
        if (lease.ended) throw new NotSentError();
        let reply: TxnReply;
        try {
          reply = await this.context.transactions.run(
            transactionOf(asked, round, queueEntries),
            timeLeft(asked),
            true,
          );
        } catch (error) {
          isUnused = didNothing(error);
          if (!isUnused) {
            this.context.releases.doubt(lease, etcdLease, round.names);
            // The transaction may add the entry late, when its waiter has gone. So this etcd lease is not renewed any more.
            // Waiters write their entries again with each request, and then with another etcd lease.
            if (round.entry) round.entry.etcdLease.gone = true;
          }
          if (!(error instanceof GatewayError && error.isNotFound)) throw error;
          etcdLease = await this.#replaced(asked, round);
          continue;
        }
        if (reply.succeeded) {
          isUnused = false;
          for (const [index, key] of lease.keys.entries())
            if (hinted) hints.got(key, hinted[index] ?? 0, slots[index] ?? 0, looks <= 1);
          return await this.#granted(asked, round, reply);
        }
        if (
          round.entry &&
          position &&
          !queueEntries.setName(round.entry.name, position.waiter) &&
          lease.ended
        ) {
          await this.context.departures.leave([round.entry.name]);
          throw new NotSentError();
        }
        const refusal = await this.#refusals.of(asked, round, reply);
        if ('granted' in refusal) return refusal;
        if (refusal.slots) {
          looks++;
          slots = refusal.slots;
          passes = true;
        }
      }
      throw new Error(
        `gave up after ${MOST_ROUNDS} rounds: in each of them, the keys or the etcd lease had changed meanwhile`,
      );
    } finally {
      if (isUnused) {
        leases.giveBack(etcdLease);
        if (hinted) hints.free(lease.keys, hinted);
      }
    }
  }

  /** The queue entry of a refused waiter: its present entry, or a new entry at the first key. */
  async #entryFor(asked: Asked, { waiter }: QueuePosition): Promise<QueueEntry> {
    const { queueEntries, queueLeases } = this.context;
    const { keys, came } = asked;
    const queued = queueEntries.all(waiter);
    const key = keys.find((each) => queued.some((name) => name.startsWith(`${each}\0`))) ?? keys[0] ?? '';
    const name = queueEntries.nameFor(key, waiter, came);
    queueEntries.addName(name, waiter);
    return { name, etcdLease: await queueLeases.shared(QUEUE_SECONDS, timeLeft(asked)) };
  }

  async #granted(asked: Asked, round: Round, reply: TxnReply): Promise<AcquireReply> {
    const { holds, queueEntries, waiters } = this.context;
    const { request, ordered } = asked;
    const { base, etcdLease, names, slots, next } = round;
    const { lease, position } = request;
    const token = base.value + revisionOf(reply.header);
    const known = lease.kind.mode === 'permits' ? slots : undefined;
    holds.add(lease, { etcdLease, doubtful: [], names, token, slots: known });
    if (!Number.isSafeInteger(token))
      throw new Error(
        'fencing token out of range: the clock was wrong when the first lock was stored in this etcd',
      );
    if (position) queueEntries.granted(position.waiter, next);
    const permits = known && permitsSeen(asked, round, reply);
    const [first] = ordered ? entriesAt(reply, (reply.responses?.length ?? 0) - 1) : [];
    if (first && first.key !== next?.name) waiters.note(lease.keys);
    if (!etcdLease.shared && etcdLease.confirmed.monotonic < asked.since.monotonic)
      await this.#renew(asked, round);
    return {
      granted: true,
      token,
      validFrom: etcdLease.confirmed,
      ...(next && first?.key === next.name ? { nextIsFirst: true } : {}),
      ...(known ? { slots: known } : {}),
      ...(permits !== undefined && permits > permitsOf(lease.kind) ? { permits } : {}),
    };
  }

  /** Renews an etcd lease that was granted for an earlier attempt, so that the lock has its whole ttl. */
  async #renew(asked: Asked, { etcdLease, names }: Round): Promise<void> {
    const keys = names.map((name) => [name] as const);
    const { isConfirmed } = await this.context.leases.renew(etcdLease, keys, timeLeft(asked));
    if (!isConfirmed)
      throw new Error(
        'the etcd lease of this lock ended before it could be renewed: give a longer `ttl` if this is frequent',
      );
  }

  /**
   * Repeats the grant of a lease that is already stored. If the lease now asks for other slots, frees its present
   * slots.
   */
  async #again(asked: Asked, hold: Hold): Promise<AcquireReply | undefined> {
    const { lease, wish } = asked.request;
    if (wish?.exactly && hold.slots?.some((slot, index) => slot !== wish.slots[index])) {
      await this.context.releases.giveUp(lease, hold);
      return undefined;
    }
    const { names, token, slots, etcdLease } = hold;
    const look = { success: names.map((name) => get([name], { keys_only: true })) };
    const reply = await this.context.transactions.run(look, timeLeft(asked));
    if (names.some((_, index) => entriesAt(reply, index).length === 0))
      throw new Error('this lock was stored before, and some of its keys are gone');
    return { granted: true, token, validFrom: etcdLease.confirmed, ...(slots ? { slots } : {}) };
  }

  /**
   * Replaces the etcd lease that no longer exists: the etcd lease of the lock, or the etcd lease of the queue entry.
   * etcd does not report which of them is missing, so this method reads the remaining time of both.
   */
  async #replaced(asked: Asked, { etcdLease, entry }: Round): Promise<EtcdLease> {
    const { leases, queueLeases } = this.context;
    const { lease, renewed } = asked.request;
    const both = [etcdLease, ...(entry ? [entry.etcdLease] : [])];
    const left = await leases.left(
      both.map(({ id }) => id),
      timeLeft(asked),
    );
    for (const each of both) if (left.get(each.id) === 0) each.gone = true;
    if (entry?.etcdLease.gone) await queueLeases.shared(QUEUE_SECONDS, timeLeft(asked));
    if (!etcdLease.gone) return etcdLease;
    const seconds = secondsOf(lease.ttl);
    return renewed === true ? leases.shared(seconds, timeLeft(asked)) : leases.own(seconds, timeLeft(asked));
  }
}
