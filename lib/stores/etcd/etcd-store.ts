import { now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { NodeCheck } from '../../core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  KeyState,
  KeyWaiter,
  LeaseExchange,
  LockDirectory,
  QueueDirectory,
  LockStore,
  ReleaseRequest,
  StoreHealth,
  Subscription,
  Tell,
  TtlRule,
  WaitQueue,
} from '../../core/ports.js';
import { RecentKeys } from '../../core/recent-keys.js';
import type { StoreTerms } from '../../core/store-factory.js';
import { tellEach } from '../../core/tell-each.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { Acquisitions } from './acquisitions.js';
import { Bases } from './bases.js';
import { Departures } from './departures.js';
import { Directory } from './directory.js';
import { EtcdLeases } from './etcd-leases.js';
import { DEFAULT_PREFIX, type EtcdOptions } from './etcd.options.js';
import { Exchanges } from './exchanges.js';
import { Extensions } from './extensions.js';
import { checkMembers, openOrUnfit } from './fitness.js';
import { Gateway } from './gateway.js';
import { Holds } from './holds.js';
import { whyNotKeys } from './key-rule.js';
import { Names } from './names.js';
import { QueueEntries } from './queue-entries.js';
import { get } from './protocol.js';
import { Releases } from './releases.js';
import { SlotHints } from './slot-hints.js';
import { TxnRunner } from './txn-runner.js';
import { WaiterTurns } from '../../core/waiter-turns.js';
import { Watches } from './watches.js';

/** Time limit in milliseconds for revoking leases when the store is closed. */
const CLOSE_LIMIT_MS = 2_000;

/** Time limit in milliseconds for the request of an idle process. */
const IDLE_LIMIT_MS = 2_000;

/**
 * A store in one etcd cluster. Its keys expire with etcd leases, and each acquisition is one transaction.
 *
 * Locks that are renewed until they are released share one etcd lease for each ttl: one keepalive renews all of them.
 * The store needs no `StarvationGuard` (S22): the transaction that stores a lease checks the queue, and there is no other node
 * with another queue.
 */
export class EtcdStore
  implements LockStore, WaitQueue, LockDirectory, QueueDirectory, LeaseExchange, StoreHealth
{
  readonly name: string;
  readonly modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
  readonly ttls: TtlRule = {
    least: 2_000,
    step: 1_000,
    reason: 'etcd counts in whole seconds, and its election timeout limits the shortest ttl',
  };
  /**
   * Always `false`: messages arrive only while a caller waits. Each watch takes a connection, so the store opens a
   * watch only for waiters.
   */
  readonly subscribed = false;
  readonly #gateway: Gateway;
  readonly #leases: EtcdLeases;
  readonly #queueLeases: EtcdLeases;
  readonly #transactions: TxnRunner;
  readonly #bases: Bases;
  readonly #hints = new SlotHints();
  readonly #holds = new Holds(this.#hints);
  readonly #releases: Releases;
  readonly #extensions: Extensions;
  readonly #exchanges: Exchanges;
  readonly #acquisitions: Acquisitions;
  readonly #queueEntries = new QueueEntries();
  readonly #departures: Departures;
  readonly #watches: Watches;
  readonly #directory: Directory;
  readonly #waiters = new RecentKeys();
  readonly #looksOnly: boolean;
  readonly #warnOnce: (message: string) => void;

  constructor(options: EtcdOptions, terms: StoreTerms) {
    const { prefix = DEFAULT_PREFIX } = options;
    const names = new Names(prefix, terms.keyPrefix);
    const gateway = new Gateway(options, {
      ready: () => {
        bases.reconnected();
        terms.ready();
        this.#releases.retryAll();
        this.#departures.retryAll();
      },
      lost: terms.lost,
      idle: () =>
        void this.#transactions.run({ success: [get([names.base])] }, IDLE_LIMIT_MS).catch(() => undefined),
    });
    this.name = `etcd at ${gateway.endpoints.map(({ host }) => host).join(',')}`;
    this.#looksOnly = terms.looksOnly ?? false;
    this.#warnOnce = terms.warnOnce;
    const holds = this.#holds;
    const transactions = new TxnRunner(gateway);
    const bases = new Bases(transactions, names.base);
    const leases = new EtcdLeases(gateway, names);
    const queueLeases = new EtcdLeases(gateway, names);
    const releases = new Releases({ transactions, leases, names, holds });
    this.#gateway = gateway;
    this.#transactions = transactions;
    this.#bases = bases;
    this.#leases = leases;
    this.#queueLeases = queueLeases;
    this.#releases = releases;
    this.#extensions = new Extensions({ transactions, leases, names, holds, releases });
    this.#exchanges = new Exchanges({ transactions, leases, names, holds });
    const departures = new Departures(transactions, queueLeases);
    this.#departures = departures;
    const turns = new WaiterTurns();
    this.#acquisitions = new Acquisitions({
      ...{ transactions, leases, queueLeases, names, holds, releases, bases, turns, departures },
      ...{ queueEntries: this.#queueEntries, waiters: this.#waiters, hints: this.#hints },
    });
    this.#watches = new Watches(gateway, transactions, names);
    this.#directory = new Directory({ transactions, leases, names });
  }

  refuses(keys: readonly string[], mode: LockMode): string | undefined {
    return whyNotKeys(keys, mode);
  }

  async connect(): Promise<void> {
    await openOrUnfit(
      this.#gateway,
      async (limit) => {
        if (!this.#looksOnly) await this.#bases.get(limit);
      },
      (message) => this.#warnOnce(`${this.name}: ${message}`),
    );
  }

  get available(): boolean {
    return this.#gateway.available;
  }

  contended(keys: readonly string[]): boolean {
    return this.#waiters.any(keys);
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    tellEach(requests, tell, (request) => {
      const reply = this.#acquisitions.acquire(request, ordered);
      this.#holds.asks(request.lease, reply);
      return reply;
    });
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    this.#extensions.extend(leases, ttl, tell);
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    tellEach(requests, tell, ({ lease }) => this.#releases.release(lease).then(() => undefined));
  }

  exchange(request: ExchangeRequest): Promise<boolean> {
    const since = now();
    const answer = this.#holds.inTurn(request.lease, () => this.#exchanges.exchange({ request, since }));
    this.#holds.asks(request.lease, answer);
    return answer;
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    return this.#watches.listen(waiter, onMessage);
  }

  leave(waiter: WaiterId): Promise<void> {
    const names = this.#queueEntries.all(waiter);
    this.#queueEntries.forget(waiter);
    return this.#departures.leave(names);
  }

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return this.#directory.read(keys);
  }

  waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    return this.#directory.waiting(keys);
  }

  scan(prefix: string): AsyncGenerator<readonly string[]> {
    return this.#directory.scan(prefix);
  }

  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    return this.#directory.forceRelease(key, ids);
  }

  check(): Promise<NodeCheck> {
    return checkMembers(this.#gateway, (limit) => this.#bases.tryToWrite(limit));
  }

  async close(): Promise<void> {
    this.#releases.close();
    this.#departures.close();
    this.#watches.close();
    if (this.#gateway.available)
      await Promise.all([this.#leases.close(CLOSE_LIMIT_MS), this.#queueLeases.close(CLOSE_LIMIT_MS)]);
    this.#gateway.close();
  }
}
