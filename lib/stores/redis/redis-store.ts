import type { Cluster, Redis } from 'ioredis';
import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { asError, GuardedNodeError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { NodeCheck } from '../../core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  KeyState,
  LockDirectory,
  LockStore,
  QuorumStore,
  ReleaseRequest,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { chunkByKeys } from './chunk-by-keys.js';
import { ClusterConnecting } from './connection/cluster-connecting.js';
import {
  CommandChannel,
  isAboutKeys,
  isNoScript,
  isRefusal,
  type Packed,
} from './connection/command-channel.js';
import { type Client, keyPrefixOf, nameOf } from './connection/connection.js';
import { MasterWatch } from './connection/master-watch.js';
import { ServerProbe, UnsafeNodeError } from './health/server-probe.js';
import { channelBase, markerKey, probeKey, queueKey, recordKey, wakeChannel } from './lock-key.js';
import { LockReader } from './lock-reader.js';
import { ClusterSubscriber } from './pubsub/cluster-subscriber.js';
import { RecentWaiters } from './pubsub/recent-waiters.js';
import { copyForMessages, Subscriber } from './pubsub/subscriber.js';
import { LINGER_MS, waiterName } from './record.js';
import {
  ACQUIRE,
  isPlain,
  isTooLate,
  packAcquire,
  readAcquireReply,
  showsWaiters,
  tooYoungFor,
} from './scripts/acquire.js';
import { BIRTH } from './scripts/birth.js';
import { EXTEND, packExtend } from './scripts/extend.js';
import { FORCE_RELEASE } from './scripts/force-release.js';
import { LEAVE } from './scripts/leave.js';
import { PROBE } from './scripts/probe.js';
import { packRaise, RAISE } from './scripts/raise.js';
import { packRelease, RELEASE } from './scripts/release.js';
import type { StoreContext } from './store-context.js';

/** More releases than this are not kept for a node that is away; the oldest end with their ttl. */
const MOST_PENDING_RELEASES = 10_000;

/** How long after a release that failed it is tried again, in milliseconds. */
const RELEASE_AGAIN_MS = 500;

/** How long a node that could not vote is not asked to keep the order of waiters, in milliseconds. */
const UNFIT_FOR_MS = 1_000;

/** For how long at most waiters are left asleep when messages cease to arrive, in milliseconds: not all of them ask at once. */
const UNSUBSCRIBED_JITTER_MS = 100;

/**
 * A duplicate of an acquisition must be refused by its deadline before the record of its lease is forgotten, also with a
 * clock that was stepped back meanwhile (S16).
 */
const LONGEST_DEADLINE_MS = LINGER_MS / 3;

/**
 * One Redis, over an ioredis client.
 *
 * One command and one round trip for each kind of request, but after a `SCRIPT FLUSH` or on a new server, where the script
 * is sent once.
 */
export class RedisStore implements LockStore, WaitQueue, LockDirectory, QuorumStore, StoreHealth {
  readonly name: string;
  readonly modes: readonly LockMode[] = ['exclusive'];
  readonly #channel: CommandChannel;
  readonly #probe: ServerProbe;
  readonly #reader: LockReader;
  readonly #masterWatch: MasterWatch | undefined;
  readonly #connecting: ClusterConnecting | undefined;

  /**
   * Releases that came to nothing, and since when by `performance.now()`: a wall clock that is put forward must not end
   * them. They are sent again when the node is back, and a while after it refused one: the lease may have been stored by a
   * command whose reply was lost (S6).
   */
  readonly #pendingReleases = new Map<Lease, number>();
  #retry: NodeJS.Timeout | undefined;

  /**
   * Leases that a client of the user's was asked to store and has not answered for, with what is to be done then. It may
   * send them again by itself after a cut, behind a release that was sent meanwhile, and so have them stored with nobody
   * to release them (S15).
   */
  readonly #unanswered = new Map<Lease, (() => void) | undefined>();

  #whenReady: (() => void) | undefined;
  #toldTooYoung = false;
  #subscriber: Subscriber | ClusterSubscriber | undefined;
  readonly #waiters = new RecentWaiters();
  /** When it last could not vote; `undefined` since it could. */
  #unfitSince: Instant | undefined;

  readonly #onClose = (): void => this.context.nodeLost?.(this.name);

  readonly #onRefresh = (): void => this.#probe.refreshed();

  readonly #onReady = (): void => {
    this.context.nodeReady?.(this.name);
    this.#channel.connected();
    this.#probe.begin();
    this.#masterWatch?.begin();
    this.#sendPendingReleases();
  };

  /**
   * @param opened - whether the client was made for us, so that it is ours to close
   */
  constructor(
    private readonly client: Client,
    private readonly opened: boolean,
    private readonly context: StoreContext,
  ) {
    this.name = nameOf(client, context.names);
    this.#channel = new CommandChannel(client, opened);
    this.#probe = new ServerProbe(this.name, this.#channel, context);
    this.#reader = new LockReader(this.#channel, context.keyPrefix);
    if (!client.isCluster && (client as Redis).options.sentinels) {
      this.#masterWatch = new MasterWatch(client as Redis, (master) => {
        this.#channel.follow(master);
        if (this.#subscriber instanceof Subscriber) this.#subscriber.follow(master);
      });
    }
    this.#connecting = client.isCluster ? new ClusterConnecting(client as Cluster) : undefined;
    client.on('ready', this.#onReady);
    client.on('close', this.#onClose);
    // A Cluster has heard which masters it has.
    client.on('refresh', this.#onRefresh);
  }

  async connect(): Promise<void> {
    const { status } = this.client;
    if (status === 'ready') {
      this.#onReady();
    } else {
      const ready = new Promise<void>((resolve) => {
        this.#whenReady = resolve;
        this.client.once('ready', resolve);
      });
      // The promise of a Cluster's `connect` never settles when the client has to connect anew.
      if (status === 'wait') await Promise.race([this.#channel.open(), ready]);
      await ready;
    }
    await this.#probe.passed();
  }

  get available(): boolean {
    const unfit = this.#unfitSince && elapsedSince(this.#unfitSince) < UNFIT_FOR_MS;
    return !unfit && this.#channel.canSend;
  }

  get subscribed(): boolean {
    return this.#subscriber?.subscribed ?? false;
  }

  contended(keys: readonly string[]): boolean {
    return this.#waiters.any(keys);
  }

  time(): number | undefined {
    return this.#probe.clock.now();
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    const asked = now();
    const answered: Tell<AcquireReply> = (index, reply) => {
      this.#unfitSince = reply instanceof Error ? now() : undefined;
      tell(index, reply);
    };
    if (this.#probe.isFit) return this.#acquire(requests, ordered, asked, true, answered);
    this.#probe.passed().then(
      () => this.#acquire(requests, ordered, asked, true, answered),
      (error: unknown) => requests.forEach((_, index) => answered(index, asError(error))),
    );
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    // The new master does not hear of what is renewed here, and lets it lapse, perhaps before our validity ends. So the
    // holder is told now that it is gone.
    if (this.#channel.leadsToOldMaster) return leases.forEach((_, index) => tell(index, false));
    const { keyPrefix } = this.context;
    let before = 0;
    for (const part of chunkByKeys(leases, (lease) => lease, this.client.isCluster)) {
      const first = before;
      before += part.length;
      // When the server has lost the script and one of the leases has ended, the others wait for their next renewal.
      const wanted = (): boolean => part.every(({ ended }) => !ended);
      this.#channel.run(EXTEND, packExtend(part, ttl, keyPrefix), wanted).then(
        (outcomes) => {
          for (let index = 0; index < part.length; index++)
            tell(first + index, String(outcomes)[index] === '1');
        },
        (error: unknown) => part.forEach((_, index) => tell(first + index, asError(error))),
      );
    }
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    let before = 0;
    for (const part of chunkByKeys(requests, leaseOf, this.client.isCluster)) {
      const first = before;
      before += part.length;
      this.#release(part, (index, reply) => {
        const { lease } = part[index] as ReleaseRequest;
        // At once in any case, as the process may end before there is an answer (S6); and once more behind the answer.
        if (!this.#unanswered.has(lease)) return tell(first + index, reply);
        this.#unanswered.set(lease, () =>
          this.#release([part[index] as ReleaseRequest], (_, again) => tell(first + index, again)),
        );
      });
    }
  }

  async raise(lease: Lease, token: number): Promise<boolean> {
    const packed = packRaise(lease, token, this.context.keyPrefix, this.#marker);
    return Number(await this.#channel.run(RAISE, packed, () => !lease.ended)) === 1;
  }

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    await this.#probe.passed();
    return this.#reader.read(keys);
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    await this.#probe.passed();
    const { connection } = this.#probe;
    for await (const page of this.#reader.scan(prefix)) {
      // To another server, or the same one after a restart, the place where a SCAN stands means nothing.
      if (connection !== this.#probe.connection) throw new Error('the connection was replaced meanwhile');
      yield page;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    await this.#probe.passed();
    const { keyPrefix } = this.context;
    const record = recordKey(keyPrefix, key);
    const packed = [2, record, queueKey(keyPrefix, key), this.#channelBase, ...ids] as const;
    const ended = ids[Number(await this.#channel.run(FORCE_RELEASE, packed)) - 1];
    return ended === undefined ? [] : [ended];
  }

  async check(guard: number): Promise<NodeCheck> {
    let age: number;
    try {
      await this.#probe.passed();
      [age] = await Promise.all([
        this.#age(),
        this.#channel.run(PROBE, [1, probeKey(this.context.keyPrefix)]),
      ]);
    } catch (error) {
      if (error instanceof UnsafeNodeError) return { state: 'unfit', reason: error.message, warnings: [] };
      if (!isRefusal(error)) throw error;
      return { state: 'unfit', reason: `refuses what a lock writes: ${error.message}`, warnings: [] };
    }
    const warnings = this.#probe.weaknesses;
    const votesIn = Math.ceil(guard - age);
    if (votesIn <= 0) return { state: 'voting', warnings };
    return { state: 'guarded', votesIn, reason: new GuardedNodeError(votesIn).message, warnings };
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    const subscriber = (this.#subscriber ??= this.#newSubscriber());
    const channels = waiter.keys.map((key) =>
      wakeChannel(this.#channelPrefix, this.client.isCluster, key, waiter.process),
    );
    const subscriptions = [...new Set(channels)].map((channel) =>
      subscriber.listen(channel, {
        message: (text) => {
          const [after, released, name] = text.split(' ', 3);
          if (Number.parseInt(name ?? '', 10) !== waiter.number) return;
          onMessage(Number(after), Number(after) === 0, released === '-' ? undefined : released);
        },
        ready: (ready) => onMessage(ready ? 0 : Math.random() * UNSUBSCRIBED_JITTER_MS, false),
      }),
    );
    return {
      get ready() {
        return subscriptions.every(({ ready }) => ready);
      },
      stop: () => {
        for (const subscription of subscriptions) subscription.stop();
      },
    };
  }

  holdBack(_waiter: WaiterId, _waited: number): Promise<void> {
    return Promise.resolve();
  }

  letPass(_waiter: WaiterId): Promise<void> {
    return Promise.resolve();
  }

  async leave(waiter: WaiterId): Promise<void> {
    const { keyPrefix } = this.context;
    const { keys } = waiter;
    const names = [
      ...keys.map((key) => recordKey(keyPrefix, key)),
      ...keys.map((key) => queueKey(keyPrefix, key)),
    ];
    await this.#channel.run(LEAVE, [names.length, ...names, waiterName(waiter), this.#channelBase]);
  }

  close(): Promise<void> {
    this.#masterWatch?.end();
    this.#channel.close();
    this.#subscriber?.close();
    this.#connecting?.close();
    this.client.off('ready', this.#onReady);
    this.client.off('close', this.#onClose);
    this.client.off('refresh', this.#onRefresh);
    if (this.#whenReady) this.client.off('ready', this.#whenReady);
    clearTimeout(this.#retry);
    this.#pendingReleases.clear();
    if (this.opened) this.client.disconnect();
    return Promise.resolve();
  }

  get #channelBase(): string {
    return this.client.isCluster ? '' : channelBase(this.#channelPrefix);
  }

  /** On a Cluster a script makes the name of a channel of a key, before which the client has put its own prefix. */
  get #channelPrefix(): string {
    const { keyPrefix } = this.context;
    return this.client.isCluster ? `${keyPrefixOf(this.client)}${keyPrefix}` : keyPrefix;
  }

  /** The key of the node's marker; a Cluster has none, as it would lie in another slot than the locks. */
  get #marker(): string | undefined {
    const { guarded, several, keyPrefix } = this.context;
    return (guarded || several) && !this.client.isCluster ? markerKey(keyPrefix) : undefined;
  }

  /** What one command is for has one ttl, one time limit and one form; mostly everything has. */
  #acquire(
    requests: readonly AcquireRequest[],
    ordered: boolean,
    asked: Instant,
    again: boolean,
    tell: Tell<AcquireReply>,
  ): void {
    const [first] = requests;
    if (!first) return;
    // What has ended is not started: its release is on its way already, and would leave it to its ttl (S15).
    if (requests.some(hasEnded)) {
      requests.forEach(({ lease }, index) => {
        if (lease.ended) tell(index, new Error('given up before it could be asked'));
      });
      return this.#acquireThose((request) => !hasEnded(request), requests, ordered, asked, again, tell);
    }
    const isLike = (request: AcquireRequest): boolean => isAlike(request, first, ordered);
    if (!requests.every(isLike)) {
      this.#acquireThose(isLike, requests, ordered, asked, again, tell);
      this.#acquireThose((request) => !isLike(request), requests, ordered, asked, again, tell);
      return;
    }
    let before = 0;
    for (const part of chunkByKeys(requests, leaseOf, this.client.isCluster)) {
      const offset = before;
      before += part.length;
      this.#store(part, ordered, asked, again, (at, reply) => tell(offset + at, reply));
    }
  }

  #acquireThose(
    fit: (request: AcquireRequest) => boolean,
    requests: readonly AcquireRequest[],
    ordered: boolean,
    asked: Instant,
    again: boolean,
    tell: Tell<AcquireReply>,
  ): void {
    const indexes = requests.flatMap((request, index) => (fit(request) ? [index] : []));
    const some = indexes.map((index) => requests[index] as AcquireRequest);
    this.#acquire(some, ordered, asked, again, (at, reply) => tell(indexes[at] as number, reply));
  }

  /**
   * Asks the server with one command to store leases.
   *
   * @param again - whether to ask once more where it finds that it was asked too late
   */
  #store(
    requests: readonly AcquireRequest[],
    ordered: boolean,
    asked: Instant,
    again: boolean,
    tell: Tell<AcquireReply>,
  ): void {
    const [{ limit, guard }] = requests as [AcquireRequest];
    const { connection } = this.#probe;
    const left = Math.min(limit - elapsedSince(asked), LONGEST_DEADLINE_MS);
    const packed = packAcquire(requests, {
      keyPrefix: this.context.keyPrefix,
      base: this.#channelBase,
      ordered,
      marker: this.#marker,
      deadline: Math.ceil((this.time() ?? 0) + left),
      guard: this.#leastAge(guard),
    });
    if (!this.opened) for (const { lease } of requests) this.#unanswered.set(lease, undefined);
    const answered: Tell<AcquireReply> = (index, reply) => {
      const { lease } = requests[index] as AcquireRequest;
      const afterwards = this.#unanswered.get(lease);
      this.#unanswered.delete(lease);
      tell(index, reply);
      afterwards?.();
    };
    const wanted = (): boolean => requests.every(({ lease }) => !lease.ended);
    this.#channel.run(ACQUIRE, packed, wanted).then(
      (result) => {
        const answers = result as readonly unknown[];
        if (connection !== this.#probe.connection) {
          // The client sent it again by itself, to a server that had not been probed.
          const error = new Error('the connection was replaced before the answer came');
          return requests.forEach((_, index) => answered(index, error));
        }
        this.#probe.clock.learn(Number(answers[requests.length]));
        const late: number[] = [];
        for (let index = 0; index < requests.length; index++) {
          const answer = answers[index];
          // The caller still waits, so it was the estimate of the server's clock that was behind: after a long silence, a
          // suspended machine or a step. It is right now.
          if (again && isTooLate(answer) && elapsedSince(asked) < limit) late.push(index);
          else answered(index, this.#voteOf(requests[index] as AcquireRequest, answer, ordered));
        }
        if (late.length === 0) return;
        const some = late.map((index) => requests[index] as AcquireRequest);
        this.#acquire(some, ordered, asked, false, (at, reply) => answered(late[at] as number, reply));
      },
      (thrown: unknown) => {
        const error = asError(thrown);
        const isOne = requests.length === 1;
        // The server did not know the script, and some are not wanted any more: the others are asked for again.
        const isForgotten = isNoScript(error) && !isOne;
        requests.forEach((request, index) => {
          if (isForgotten || (!isOne && isAboutKeys(error)))
            this.#acquire([request], ordered, asked, again, (_, reply) => answered(index, reply));
          else answered(index, error);
        });
      },
    );
  }

  /** A restart from old data brings an old marker with it. While that is so, no marker is old enough. */
  #leastAge(guard: number): number {
    if (!this.#probe.guarded) return 0;
    return this.#probe.age() < guard ? Number.MAX_SAFE_INTEGER : guard;
  }

  #voteOf({ lease, guard }: AcquireRequest, answer: unknown, ordered: boolean): AcquireReply | Error {
    const wait = tooYoungFor(answer);
    if (wait !== undefined) {
      const untilOldEnough = Math.ceil(guard - this.#probe.age());
      return this.#tooYoung(untilOldEnough > 0 ? untilOldEnough : wait);
    }
    const reply = answer instanceof Error ? this.#channel.explained(answer) : readAcquireReply(answer);
    if (reply instanceof Error) return reply;
    this.#toldTooYoung = false;
    if (ordered && showsWaiters(answer)) this.#waiters.note(lease.keys);
    return reply;
  }

  #release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    const { keyPrefix } = this.context;
    const failed = (index: number, error: Error): void => {
      const { lease } = requests[index] as ReleaseRequest;
      this.#keepRelease(lease);
      if (isRefusal(error)) this.#reportRefusal(error);
      tell(index, error);
    };
    this.#channel.run(RELEASE, packRelease(requests, keyPrefix, this.#channelBase)).then(
      (answers) => {
        requests.forEach(({ lease }, index) => {
          const answer = (answers as readonly unknown[])[index];
          if (answer instanceof Error) return failed(index, this.#channel.explained(answer));
          if (Number(answer) > 0) this.#waiters.note(lease.keys);
          this.#pendingReleases.delete(lease);
          tell(index, undefined);
        });
      },
      (thrown: unknown) => {
        const error = asError(thrown);
        if (requests.length === 1 || !isAboutKeys(error))
          return requests.forEach((_, index) => failed(index, error));
        requests.forEach((request, index) => this.#release([request], (_, reply) => tell(index, reply)));
      },
    );
  }

  /** Milliseconds since the server started or lost its data, whichever was later, as far as is known. */
  async #age(): Promise<number> {
    const marker = this.#probe.guarded ? this.#marker : undefined;
    // Answers also without a marker, and leaves one where it is gone, so that the time until the node votes begins.
    const packed: Packed = marker === undefined ? [0] : [1, marker];
    const [micros, born] = (await this.#channel.run(BIRTH, packed)) as [unknown, unknown];
    if (marker === undefined) return Infinity;
    return Math.min(Math.max(0, Number(micros) / 1_000 - Number(born)), this.#probe.age());
  }

  #newSubscriber(): Subscriber | ClusterSubscriber {
    const { client } = this;
    const [channels, commands] = client.isCluster
      ? [`${this.#channelPrefix}*`, '+ssubscribe +sunsubscribe +spublish']
      : [`${this.#channelBase}*`, '+subscribe +publish'];
    const denied = (): void =>
      this.context.warnOnce(
        `${this.name}: its user may not subscribe to channels, so that those who wait for a lock have to poll; allow it ` +
          `with ACL SETUSER <user> &${channels} ${commands}`,
      );
    return client.isCluster
      ? new ClusterSubscriber(client as Cluster, denied)
      : new Subscriber(() => copyForMessages(client as Redis), false, denied);
  }

  /** Logged once for each time that the node is kept from voting. */
  #tooYoung(wait: number): Error {
    const error = new GuardedNodeError(wait);
    if (!this.#toldTooYoung) this.context.warnOnce(`${this.name} ${error.message}`);
    this.#toldTooYoung = true;
    return error;
  }

  /** What fails stays pending until the next time. */
  #sendPendingReleases(): void {
    for (const [lease, since] of this.#pendingReleases) {
      if (performance.now() - since > lease.pendingFor) this.#pendingReleases.delete(lease);
      else if (this.#channel.canSend) this.#release([{ lease, pause: 0 }], () => undefined);
      else return this.#retryLater();
    }
  }

  /** A server may refuse a release for a while without ending the connection (MISCONF, NOREPLICAS, BUSY). */
  #retryLater(): void {
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.#sendPendingReleases();
    }, RELEASE_AGAIN_MS).unref();
  }

  #reportRefusal({ message }: Error): void {
    this.context.warnOnce(
      `${this.name} refuses to release locks, which end with their ttl meanwhile: ${message}`,
    );
  }

  #keepRelease(lease: Lease): void {
    if (!this.#pendingReleases.has(lease)) this.#pendingReleases.set(lease, performance.now());
    for (const [oldest, since] of this.#pendingReleases) {
      const isTooMany = this.#pendingReleases.size > MOST_PENDING_RELEASES;
      if (!isTooMany && performance.now() - since <= oldest.pendingFor) break;
      this.#pendingReleases.delete(oldest);
    }
    this.#retryLater();
  }
}

function leaseOf({ lease }: { readonly lease: Lease }): Lease {
  return lease;
}

function hasEnded({ lease }: AcquireRequest): boolean {
  return lease.ended;
}

function isAlike(a: AcquireRequest, b: AcquireRequest, ordered: boolean): boolean {
  return (
    a.lease.ttl === b.lease.ttl &&
    a.limit === b.limit &&
    a.guard === b.guard &&
    isPlain(a, ordered) === isPlain(b, ordered)
  );
}
