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
  LockStore,
  QueueDirectory,
  ReleaseRequest,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../../core/ports.js';
import { RecentKeys } from '../../core/recent-keys.js';
import type { StoreTerms } from '../../core/store-factory.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { WaiterTurns } from '../../core/waiter-turns.js';
import { tellEach } from '../../core/tell-each.js';
import { Acquisitions } from './acquisitions.js';
import { ZooKeeperClient } from './client/zookeeper-client.js';
import { Directory } from './directory.js';
import { Exchanges } from './exchanges.js';
import { Extensions } from './extensions.js';
import { KeyRecords } from './key-records.js';
import { whyNot } from './key-rule.js';
import { LeaderClock } from './leader-clock.js';
import { Leases } from './leases.js';
import { Names } from './names.js';
import { checkMajority, orUnfit, prepare } from './preparation.js';
import { Releases } from './releases.js';
import { Sweeper } from './sweeper.js';
import { WaiterMessages } from './waiter-messages.js';
import type { ZooKeeperOptions } from './zookeeper.options.js';

/** Time limit in milliseconds for the end of the session, when the store is closed. */
const CLOSE_LIMIT_MS = 1_000;

/** Milliseconds after which a failed preparation is repeated. */
const PREPARE_AGAIN_MS = 500;

/**
 * A store in one ZooKeeper ensemble. Each key is a persistent node, which changes by compare-and-set on its version.
 *
 * No lock rests on a session. A holder trusts its lock for its ttl, from the moment at which it sent its last confirmed
 * write. Another process takes the key over only after it has seen the same stamp for the ttl and 1 %.
 */
export class ZooKeeperStore
  implements LockStore, WaitQueue, LockDirectory, QueueDirectory, LeaseExchange, StoreHealth
{
  readonly name: string;
  readonly modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
  readonly #client: ZooKeeperClient;
  readonly #names: Names;
  readonly #leases = new Leases();
  readonly #records: KeyRecords;
  readonly #acquisitions: Acquisitions;
  readonly #extensions: Extensions;
  readonly #exchanges: Exchanges;
  readonly #releases: Releases;
  readonly #directory: Directory;
  readonly #messages: WaiterMessages;
  readonly #sweeper: Sweeper;
  /** The keys for which other callers wait. */
  readonly #contended = new RecentKeys();
  /** The preparation of the present connection. */
  #prepared: Promise<void> | undefined;
  #isPrepared = false;

  constructor(
    options: ZooKeeperOptions,
    private readonly terms: StoreTerms,
  ) {
    this.#names = new Names(terms.keyPrefix);
    const client = new ZooKeeperClient(options, {
      ready: () => this.#connected(),
      lost: () => this.#lost(),
      watch: (path) => this.#messages.changed(path),
    });
    const names = this.#names;
    const clock = new LeaderClock(client);
    const leases = this.#leases;
    const records = new KeyRecords({ client, names, clock, prepare: () => prepare(client) });
    const comparesTimes = options.compareTimes ?? true;
    this.name = `ZooKeeper at ${client.address}`;
    this.#client = client;
    this.#records = records;
    this.#acquisitions = new Acquisitions({
      ...{ records, leases, clock, comparesTimes, turns: new WaiterTurns() },
    });
    this.#extensions = new Extensions(records, leases);
    this.#exchanges = new Exchanges(records, leases);
    this.#releases = new Releases(records, leases);
    this.#directory = new Directory({ client, records, names, clock, comparesTimes });
    this.#messages = new WaiterMessages({ client, records, names });
    this.#sweeper = new Sweeper({ client, records, names });
    if (!terms.looksOnly) this.#sweeper.start();
  }

  async connect(): Promise<void> {
    try {
      await this.#client.open();
    } catch (error) {
      throw orUnfit(error);
    }
    await this.#prepared;
  }

  get available(): boolean {
    return this.#isPrepared && this.#client.available;
  }

  get subscribed(): boolean {
    return this.available;
  }

  refuses(keys: readonly string[], mode: LockMode, permits?: number): string | undefined {
    return whyNot(
      keys.map((key) => this.#names.nodeOf(key)),
      mode,
      permits,
    );
  }

  contended(keys: readonly string[]): boolean {
    return this.#contended.any(keys);
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    tellEach(requests, tell, (request) => {
      const reply = this.#acquire(request, ordered);
      this.#leases.asks(request.lease, reply);
      return reply;
    });
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    tellEach(leases, tell, (lease) => this.#extensions.extend(lease, ttl));
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    tellEach(requests, tell, ({ lease }) => this.#releases.release(lease).then(() => undefined));
  }

  exchange(request: ExchangeRequest): Promise<boolean> {
    const answer = this.#exchanges.exchange(request);
    this.#leases.asks(request.lease, answer);
    return answer;
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    return this.#messages.listen(waiter, onMessage);
  }

  leave(waiter: WaiterId): Promise<void> {
    return this.#messages.leave(waiter);
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
    return checkMajority(this.#client);
  }

  /**
   * Deletes the nodes of keys that were not used for a time in milliseconds.
   *
   * @internal The store does this by itself; only tests call it.
   */
  sweep(unusedFor: number): Promise<number> {
    return this.#sweeper.sweep(unusedFor);
  }

  async close(): Promise<void> {
    this.#releases.close();
    this.#messages.close();
    this.#sweeper.stop();
    await this.#client.close(CLOSE_LIMIT_MS);
  }

  async #acquire(request: AcquireRequest, ordered: boolean): Promise<AcquireReply> {
    const { position, lease } = request;
    if (ordered && position) this.#messages.mayQueue(position.waiter);
    const { reply, isContended, queuedAt } = await this.#acquisitions.acquire(request, ordered);
    if (isContended) this.#contended.note(lease.keys);
    if (queuedAt !== undefined) this.#messages.isQueuedAt(queuedAt);
    if (reply.granted && ordered && position && position.next === undefined)
      this.#messages.isOut(position.waiter);
    return reply;
  }

  #lost(): void {
    this.#isPrepared = false;
    this.#messages.lost();
    this.terms.lost();
  }

  #connected(): void {
    this.#records.reconnected();
    const prepared = this.terms.looksOnly ? Promise.resolve() : prepare(this.#client);
    this.#prepared = prepared;
    prepared.then(
      () => {
        // After a loss of the connection another preparation has begun.
        if (prepared !== this.#prepared) return;
        this.#isPrepared = true;
        this.terms.ready();
        this.#releases.retryAll();
        this.#messages.connected();
      },
      // Without the nodes of the store no lock can be stored, so a connection that works is no reason to wait for the next.
      () =>
        setTimeout(
          () => this.#client.available && prepared === this.#prepared && this.#connected(),
          PREPARE_AGAIN_MS,
        ).unref(),
    );
  }
}
