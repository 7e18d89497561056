import type { Instant } from '../../core/clock.js';
import { NotSentError } from '../../core/errors.js';
import type { ExchangeRequest } from '../../core/ports.js';
import { timeLeft } from './attempt.js';
import { type EtcdLease, type EtcdLeases, secondsOf } from './etcd-leases.js';
import { didNothing } from './gateway.js';
import type { Holds } from './holds.js';
import { type FoundHolder, holderValue, viewOf } from './key-view.js';
import { holderName, holdersOf, type Names } from './names.js';
import { entriesAt, get, modifiedAt, put, remove } from './protocol.js';
import type { TxnRunner } from './txn-runner.js';

/** Largest number of rounds of an exchange. Another round follows when the keys have changed meanwhile. */
const MOST_ROUNDS = 16;

interface ExchangeContext {
  readonly transactions: TxnRunner;
  readonly leases: EtcdLeases;
  readonly names: Names;
  readonly holds: Holds;
}

/** One exchange, and the time from which its limit counts. */
export interface AskedExchange {
  readonly request: ExchangeRequest;
  readonly since: Instant;
}

/**
 * Puts one lease in the place of another, in one transaction that compares the revisions of all its keys.
 *
 * A transaction without an answer may still come. Each later exchange of the same keys writes them again, even if their
 * lease stays the same, so the late transaction compares earlier revisions and changes nothing (S16).
 */
export class Exchanges {
  constructor(private readonly context: ExchangeContext) {}

  async exchange(asked: AskedExchange): Promise<boolean> {
    const { leases } = this.context;
    const { lease } = asked.request;
    /** An etcd lease to which no key is attached. */
    let spare: EtcdLease | undefined;
    try {
      for (let round = 0; round < MOST_ROUNDS; round++) {
        const found = await this.#holders(asked);
        if (!found) return false;
        if (found.every(({ id }) => id === lease.id)) {
          if (await this.#write(found, asked)) return true;
          continue;
        }
        // A lease needs an etcd lease of its own: the process that has detached the lock renews the shared one for its
        // other locks.
        spare ??= await leases.once(await this.#seconds(found, asked), timeLeft(asked));
        try {
          if (!(await this.#move(found, asked, spare))) continue;
        } catch (error) {
          if (!didNothing(error)) spare = undefined;
          throw error;
        }
        spare = undefined;
        return true;
      }
      throw new Error(`gave up after ${MOST_ROUNDS} rounds: in each of them, the keys had changed meanwhile`);
    } finally {
      if (spare) leases.drop(spare);
    }
  }

  /** For each key its holder that is the lease, or that the lease replaces; `undefined` if a key has none. */
  async #holders(asked: AskedExchange): Promise<readonly FoundHolder[] | undefined> {
    const { transactions, names } = this.context;
    const { lease, replaces } = asked.request;
    const keys = lease.keys.map((key) => names.of(key));
    const look = await transactions.run({ success: keys.map((key) => get(holdersOf(key))) }, timeLeft(asked));
    const found: FoundHolder[] = [];
    for (const [index, key] of keys.entries()) {
      const holders = viewOf(key, entriesAt(look, index)).holders.filter(({ kept }) => !kept);
      const holder =
        holders.find(({ id }) => id === lease.id) ?? holders.find(({ id }) => replaces.includes(id));
      if (!holder) return undefined;
      found.push(holder);
    }
    return found;
  }

  /** The ttl of the etcd leases of the holders, in seconds: what is left of them may be known too small. */
  async #seconds(found: readonly FoundHolder[], asked: AskedExchange): Promise<number> {
    const { leases } = this.context;
    const granted = [...new Set(found.map(({ etcdLease }) => etcdLease))].map(async (id) => {
      if (id === '0') return secondsOf(asked.request.lease.ttl);
      return (await leases.known(id, timeLeft(asked))).seconds;
    });
    return Math.max(...(await Promise.all(granted)));
  }

  /**
   * Stores the lease with another etcd lease in the place of the holders.
   *
   * @returns `false` if nothing was changed, because a holder has changed meanwhile
   */
  async #move(found: readonly FoundHolder[], asked: AskedExchange, next: EtcdLease): Promise<boolean> {
    const { leases, holds } = this.context;
    const { lease } = asked.request;
    const before = holds.of(lease);
    const hold = before ?? {
      ...{ etcdLease: next, doubtful: [], names: this.#namesOf(found, asked) },
      slots: lease.kind.mode === 'permits' ? found.map(({ slot = 0 }) => slot) : undefined,
      token: Math.max(...found.map(({ base, revision }) => base + revision)),
    };
    // Without an answer, the release of the lease must know this etcd lease.
    if (before) before.doubtful = [...before.doubtful, next];
    else holds.add(lease, hold);
    let isDone: boolean | undefined;
    try {
      isDone = await this.#write(found, asked, next);
    } catch (error) {
      isDone = didNothing(error) ? false : undefined;
      throw error;
    } finally {
      if (isDone === false) {
        if (before) before.doubtful = before.doubtful.filter((each) => each !== next);
        else holds.delete(lease);
      }
    }
    if (isDone) {
      for (const other of holds.moved(lease, hold, next)) leases.drop(other);
      leases.forget(found);
    }
    return isDone;
  }

  /** @param next - the etcd lease of the keys; by default they keep theirs */
  async #write(found: readonly FoundHolder[], asked: AskedExchange, next?: EtcdLease): Promise<boolean> {
    const { transactions, holds } = this.context;
    const { lease, since } = asked.request;
    // Do not store a lease that has ended: it would stay until its ttl has passed (S15).
    if (holds.hasEnded(lease)) throw new NotSentError();
    const owner = lease.owner.toWellFormed();
    const names = this.#namesOf(found, asked);
    const compare = found.map(({ name, modified }) => modifiedAt(name, modified));
    const success = found.flatMap((holder, index) => {
      const name = names[index]!;
      const value = holderValue({ ...holder, id: lease.id, owner, since });
      const stored = put(name, value, next?.id ?? holder.etcdLease);
      return holder.name === name ? [stored] : [remove(holder.name), stored];
    });
    return (await transactions.run({ compare, success }, timeLeft(asked), true)).succeeded === true;
  }

  #namesOf(found: readonly FoundHolder[], { request: { lease } }: AskedExchange): readonly string[] {
    return found.map(({ mode, slot }, index) =>
      holderName(this.context.names.of(lease.keys[index]!), mode, lease.id, slot),
    );
  }
}
