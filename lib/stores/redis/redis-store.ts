import type { Cluster, Redis } from 'ioredis';
import { NoTimeError } from '../../redlock/fan-out.js';
import type { Lease } from '../../core/lease.js';
import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { GuardedNodeError } from '../../core/errors.js';
import { COUNTER_LIFE_MS } from '../../core/fencing-token.js';
import type {
  AcquireReply,
  AcquireTerms,
  Listening,
  LockStore,
  KeyState,
  QueuePosition,
} from '../../core/ports.js';
import type { NodeCheck } from '../../core/node-status.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { Tick } from '../../core/tick.js';
import { ClusterConnecting } from './connection/cluster-connecting.js';
import { ClusterSubscriber } from './pubsub/cluster-subscriber.js';
import { CommandBatcher } from './connection/command-batcher.js';
import { CommandChannel, isRefusal } from './connection/command-channel.js';
import { type Client, keyPrefixOf, nameOf } from './connection/connection.js';
import type { StoreContext } from './store-context.js';
import { chunkByKeys } from './chunk-by-keys.js';
import {
  bornKey,
  channelBase,
  fenceKey,
  lockKey,
  probeKey,
  queueKey,
  tickKey,
  wakeChannel,
} from './lock-key.js';
import { LockReader } from './lock-reader.js';
import { lockValue, ownerOf, ownerOfPlace, placeName, runnerOf, tickValue } from './lock-value.js';
import { MasterWatch } from './connection/master-watch.js';
import { ServerProbe, UnsafeNodeError } from './health/server-probe.js';
import { RecentWaiters } from './pubsub/recent-waiters.js';
import {
  ALREADY_RAN,
  BIRTH,
  EXTEND,
  FORCE_RELEASE,
  LEAVE,
  PROBE,
  RAISE,
  TOO_LATE,
  TOO_YOUNG,
  TURN_OF_ANOTHER,
} from './scripts.js';
import { copyForMessages, Subscriber } from './pubsub/subscriber.js';

/** More releases than this are not kept for a node that is away; the oldest end with their ttl. */
const MOST_OWED_RELEASES = 10_000;

/** How long after a release that failed it is tried again, in milliseconds. */
const RELEASE_AGAIN_MS = 500;

/** How long a node that could not vote is not asked to keep the order of waiters, in milliseconds. */
const UNFIT_FOR_MS = 1_000;

/** For how long at most waiters are left asleep when messages cease to arrive, in milliseconds: not all of them ask at once. */
const DEAF_JITTER_MS = 100;

/**
 * One Redis as a {@link LockStore}, over an ioredis client.
 *
 * One command and one round trip for each request, but after a `SCRIPT FLUSH` or on a new server, where the script is
 * sent once.
 */
export class RedisStore implements LockStore {
  readonly name: string;
  readonly #channel: CommandChannel;
  readonly #batcher: CommandBatcher;
  readonly #inspection: ServerProbe;
  readonly #reader: LockReader;
  readonly #masterWatch: MasterWatch | undefined;
  readonly #connecting: ClusterConnecting | undefined;

  /**
   * Releases that came to nothing, and since when. They are sent again when the node is back, and a while after it
   * refused one: the claim may have been stored by a command whose reply was lost (S6). The time is that of
   * `performance.now()`: a wall clock that is put forward must not end them.
   */
  readonly #owed = new Map<Lease, number>();
  #payment: NodeJS.Timeout | undefined;

  /**
   * Acquires that a client of the user's has not answered. It may send them again by itself after a cut, behind a
   * release that was sent meanwhile, and so have them stored with nobody to release them (S15).
   */
  readonly #unanswered = new Map<Lease, Promise<unknown>>();

  #whenReady: (() => void) | undefined;
  #toldTooYoung = false;
  #subscriber: Subscriber | ClusterSubscriber | undefined;
  readonly #waiters = new RecentWaiters();
  /** When it last could not vote on a claim; `undefined` since it could. */
  #unfitSince: Instant | undefined;

  readonly #onClose = (): void => this.fleet.nodeLost?.(this.name);

  readonly #onRefresh = (): void => this.#inspection.refreshed();

  readonly #onReady = (): void => {
    this.fleet.nodeReady?.(this.name);
    this.#channel.connected();
    this.#inspection.begin();
    this.#masterWatch?.begin();
    this.#payOwed();
  };

  /**
   * @param opened - whether the client was made for us, so that it is ours to close
   */
  constructor(
    private readonly client: Client,
    private readonly opened: boolean,
    private readonly fleet: StoreContext,
  ) {
    this.name = nameOf(client, fleet.names);
    this.#channel = new CommandChannel(client, opened);
    this.#batcher = new CommandBatcher(this.#channel, this.#channelBase);
    this.#inspection = new ServerProbe(this.name, this.#channel, fleet);
    this.#reader = new LockReader(this.#channel, fleet.keyPrefix);
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
    await this.#inspection.passed();
  }

  get available(): boolean {
    const unfit = this.#unfitSince && elapsedSince(this.#unfitSince) < UNFIT_FOR_MS;
    return !unfit && this.#channel.canSend;
  }

  get subscribed(): boolean {
    return this.#subscriber?.hearing ?? false;
  }

  contended(keys: readonly string[]): boolean {
    return this.#waiters.any(keys);
  }

  time(): number | undefined {
    return this.#inspection.clock.now();
  }

  async acquire(claim: Lease, terms: AcquireTerms): Promise<AcquireReply> {
    const asked = now();
    try {
      if (!this.#inspection.isFit) await this.#inspection.passed();
      let result = await this.#tryToStore(claim, terms, terms.limit - elapsedSince(asked));
      if (isTooLate(result) && elapsedSince(asked) < terms.limit) {
        // The caller still waits, so it was the estimate of the server's clock that was behind: after a long silence, a
        // suspended machine or a step. It is right now.
        result = await this.#tryToStore(claim, terms, terms.limit - elapsedSince(asked));
      }
      const reply = this.#voteOf(claim.keys, result, terms.guard);
      this.#unfitSince = undefined;
      return reply;
    } catch (error) {
      this.#unfitSince = now();
      throw error;
    }
  }

  async raise(claim: Lease, token: number): Promise<boolean> {
    const args = [claim.keys.length, lockValue(claim), token, counterLife(claim.ttl)];
    return Number(await this.#channel.run(RAISE, this.#keysOf(claim), args, () => !claim.ended)) === 1;
  }

  extend(claims: readonly Lease[], ttl: number): readonly Promise<boolean>[] {
    // The new master does not hear of what is renewed here, and lets it lapse, perhaps before our validity ends. So the
    // holder is told now that it is gone.
    if (this.#channel.leadsToOldMaster) return claims.map(() => Promise.resolve(false));
    return chunkByKeys(claims, this.client.isCluster).flatMap((some) => {
      const outcomes = this.#extendTogether(some, ttl);
      return some.map((_, index) => outcomes.then((each) => each[index] === '1'));
    });
  }

  async release(claim: Lease, after = 0): Promise<void> {
    const acquiring = this.#unanswered.get(claim);
    // At once in any case: the process may end before there is an answer (S6).
    const released = this.#releaseNow(claim, after);
    if (!acquiring) return released;
    await Promise.allSettled([acquiring, released]);
    await this.#releaseNow(claim, after);
  }

  async #releaseNow(claim: Lease, after: number): Promise<void> {
    const { keepFor, mark } = claim;
    const keys = this.#locksAndQueues(claim.keys);
    if (mark) keys.push(this.#tickKeyOf(claim, mark));
    const plain = keepFor === 0 && after === 0 && !mark;
    const numbers = plain
      ? `${claim.keys.length}`
      : `${claim.keys.length} ${keepFor} ${after} ${mark?.life ?? '-'}`;
    const args = [lockValue(claim), numbers, mark ? tickValue(claim, mark) : ''];
    try {
      const { answer } = await this.#batcher.release(keys, args, after > 0);
      if (Number(answer) > 0) this.#waiters.note(claim.keys);
    } catch (error) {
      this.#owe(claim);
      this.#payLater();
      if (isRefusal(error)) this.#reportRefusal(error);
      throw error;
    }
    this.#owed.delete(claim);
  }

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    await this.#inspection.passed();
    return this.#reader.look(keys);
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    await this.#inspection.passed();
    const { connection } = this.#inspection;
    for await (const page of this.#reader.scan(prefix)) {
      // To another server, or the same one after a restart, the place where a SCAN stands means nothing.
      if (connection !== this.#inspection.connection)
        throw new Error('the connection was replaced meanwhile');
      yield page;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<string | undefined> {
    await this.#inspection.passed();
    const args = [this.#channelBase, ...ids];
    const deleted = await this.#channel.run(FORCE_RELEASE, this.#locksAndQueues([key]), args);
    return ids[Number(deleted) - 1];
  }

  async check(guard: number): Promise<NodeCheck> {
    const probe = [probeKey(this.fleet.keyPrefix)];
    let age: number;
    try {
      await this.#inspection.passed();
      [age] = await Promise.all([this.#age(), this.#channel.run(PROBE, probe, [])]);
    } catch (error) {
      if (error instanceof UnsafeNodeError) return { state: 'unfit', reason: error.message, warnings: [] };
      if (!isRefusal(error)) throw error;
      return { state: 'unfit', reason: `refuses what a lock writes: ${error.message}`, warnings: [] };
    }
    const warnings = this.#inspection.weaknesses;
    const votesIn = Math.ceil(guard - age);
    if (votesIn <= 0) return { state: 'voting', warnings };
    return { state: 'guarded', votesIn, reason: new GuardedNodeError(votesIn).message, warnings };
  }

  listen(place: WaiterId, heard: (after: number, turn: boolean, released?: string) => void): Listening {
    const subscriber = (this.#subscriber ??= this.#newSubscriber());
    const channels = place.keys.map((key) =>
      wakeChannel(this.#channelPrefix, this.client.isCluster, key, place.process),
    );
    const listenings = [...new Set(channels)].map((channel) =>
      subscriber.listen(channel, {
        message: (text) => {
          const [number, after, released] = text.split(' ');
          if (Number(number) === place.number) heard(Number(after), Number(after) === 0, released);
        },
        ready: (ready) => heard(ready ? 0 : Math.random() * DEAF_JITTER_MS, false),
      }),
    );
    return {
      get ready() {
        return listenings.every(({ ready }) => ready);
      },
      stop: () => {
        for (const listening of listenings) listening.stop();
      },
    };
  }

  async leave(place: WaiterId): Promise<void> {
    const args = [place.keys.length, placeName(place), this.#channelBase];
    await this.#channel.run(LEAVE, this.#locksAndQueues(place.keys), args);
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
    clearTimeout(this.#payment);
    this.#owed.clear();
    this.#batcher.flush();
    if (this.opened) this.client.disconnect();
    return Promise.resolve();
  }

  /** Extends claims with one command; resolves to what the script returns. */
  async #extendTogether(claims: readonly Lease[], ttl: number): Promise<string> {
    const keys = claims.flatMap((claim) => this.#keysOf(claim));
    const args = claims.flatMap((claim) => [claim.keys.length, lockValue(claim)]);
    // When the server has lost the script and one of the claims has ended, the others wait for their next renewal.
    const wanted = (): boolean => claims.every(({ ended }) => !ended);
    return String(await this.#channel.run(EXTEND, keys, [ttl, counterLife(ttl), ...args], wanted));
  }

  /** Milliseconds since the server started or lost its data, whichever was later, as far as is known. */
  async #age(): Promise<number> {
    const keys = this.#inspection.guarded ? [bornKey(this.fleet.keyPrefix)] : [];
    // Answers also without a marker, and leaves one where it is gone, so that the time until the node votes begins.
    const met = Number(await this.#channel.run(BIRTH, keys, [])) / 1_000;
    const [marker] = keys;
    if (marker === undefined) return Infinity;
    const born = Number(await this.#channel.send(() => this.#channel.client.get(marker)));
    return Math.min(Math.max(0, met - born), this.#inspection.age());
  }

  #newSubscriber(): Subscriber | ClusterSubscriber {
    const { client } = this;
    const [channels, commands] = client.isCluster
      ? [`${this.#channelPrefix}*`, '+ssubscribe +sunsubscribe +spublish']
      : [`${this.#channelBase}*`, '+subscribe +publish'];
    const denied = (): void =>
      this.fleet.warnOnce(
        `${this.name}: its user may not subscribe to channels, so that those who wait for a lock have to poll; allow it ` +
          `with ACL SETUSER <user> &${channels} ${commands}`,
      );
    return client.isCluster
      ? new ClusterSubscriber(client as Cluster, denied)
      : new Subscriber(() => copyForMessages(client as Redis), false, denied);
  }

  /** Asks the server to store the claim, if it can be done within `limit` milliseconds. */
  #tryToStore(
    claim: Lease,
    { guard, seed, floor, order }: AcquireTerms,
    limit: number,
  ): Promise<AcquireResult> {
    const { connection, guarded } = this.#inspection;
    const keys = this.#keysOf(claim);
    const leastAge = guarded ? this.#leastMarkerAge(guard) : 0;
    if (leastAge > 0) keys.push(bornKey(this.fleet.keyPrefix));
    if (order) keys.push(...claim.keys.map((key) => queueKey(this.fleet.keyPrefix, key)));
    if (claim.tick) keys.push(this.#tickKeyOf(claim, claim.tick));
    const { ttl } = claim;
    const start = floor === 'fine' ? 0 : seed;
    const numbers =
      `${claim.keys.length} ${ttl} ${counterLife(ttl)} ${this.#deadline(limit)} ${leastAge} ${start} ` +
      `${order ? 1 : 0} ${claim.tick?.at ?? '-'}`;
    const args = [lockValue(claim), numbers, order?.place ? placeOf(order, order.place) : ''];
    const wanted = (): boolean => !claim.ended;
    return this.#answerTo(claim, this.#batcher.acquire(keys, args, wanted)).then(({ answer, all }) => {
      if (connection !== this.#inspection.connection) {
        // The client sent it again by itself, to a server that had not been inspected.
        throw new Error('the connection was replaced before the answer came');
      }
      this.#inspection.clock.learn(Number(all.at(-1)));
      return answer as AcquireResult;
    });
  }

  /** Remembers that a claim is asked for until there is an answer, where the client may ask again by itself. */
  #answerTo<T>(claim: Lease, acquiring: Promise<T>): Promise<T> {
    if (this.opened) return acquiring;
    this.#unanswered.set(claim, acquiring);
    return acquiring.finally(() => this.#unanswered.delete(claim));
  }

  /** A restart from old data brings an old marker with it. While that is so, no marker is old enough. */
  #leastMarkerAge(guard: number): number {
    return this.#inspection.age() < guard ? Number.MAX_SAFE_INTEGER : guard;
  }

  #voteOf(keys: readonly string[], result: AcquireResult, guard: number): AcquireReply {
    if (!Array.isArray(result)) {
      this.#toldTooYoung = false;
      return { granted: true, counter: checkedCounter(result) };
    }
    const [outcome, detail, remaining] = result as readonly (number | string)[];
    const code = Number(outcome);
    if (code === TOO_LATE) throw new NoTimeError(`was asked ${detail} ms too late, and did nothing`);
    if (code === TOO_YOUNG) {
      const untilOldEnough = Math.ceil(guard - this.#inspection.age());
      throw this.#tooYoung(untilOldEnough > 0 ? untilOldEnough : Number(detail));
    }
    this.#toldTooYoung = false;
    if (code === 0) {
      this.#waiters.note(keys);
      return { granted: true, counter: checkedCounter(detail), nextIsFirst: Number(remaining) > 1 };
    }
    const id = String(detail);
    if (code === ALREADY_RAN) {
      return { granted: false, ran: true, holder: { id, owner: runnerOf(id), remaining: Number(remaining) } };
    }
    this.#waiters.note(keys);
    if (code === TURN_OF_ANOTHER) {
      return { granted: false, holder: { id, owner: ownerOfPlace(id), remaining: Number(remaining) } };
    }
    // PTTL answers -1 for a key without expiry.
    const left = Number(remaining) < 0 ? Infinity : Number(remaining);
    return { granted: false, holder: { id, owner: ownerOf(id), remaining: left } };
  }

  get #channelBase(): string {
    return this.client.isCluster ? '' : channelBase(this.#channelPrefix);
  }

  /** On a Cluster a script makes the name of a channel of a key, before which the client has put its own prefix. */
  get #channelPrefix(): string {
    const { keyPrefix } = this.fleet;
    return this.client.isCluster ? `${keyPrefixOf(this.client)}${keyPrefix}` : keyPrefix;
  }

  #locksAndQueues(keys: readonly string[]): string[] {
    const { keyPrefix } = this.fleet;
    return keys.map((key) => lockKey(keyPrefix, key)).concat(keys.map((key) => queueKey(keyPrefix, key)));
  }

  /** Logged once for each time that the node is kept from voting. */
  #tooYoung(wait: number): Error {
    const error = new GuardedNodeError(wait);
    if (!this.#toldTooYoung) this.fleet.warnOnce(`${this.name} ${error.message}`);
    this.#toldTooYoung = true;
    return error;
  }

  /** The time on the server's clock when `limit` milliseconds have passed; 0 when its clock is not known (S16). */
  #deadline(limit: number): number {
    const time = this.time();
    return time === undefined ? 0 : Math.ceil(time + limit);
  }

  /** The lock keys of a claim, then their counters. */
  #keysOf({ keys }: Lease): string[] {
    const { keyPrefix } = this.fleet;
    return keys.map((key) => lockKey(keyPrefix, key)).concat(keys.map((key) => fenceKey(keyPrefix, key)));
  }

  /** Beside the first of the keys: all keys of a lock are in one slot. */
  #tickKeyOf({ keys }: Lease, { schedule }: Pick<Tick, 'schedule'>): string {
    return tickKey(this.fleet.keyPrefix, keys[0] ?? '', schedule);
  }

  /** Sends again what is owed; what fails stays owed until the next time. */
  #payOwed(): void {
    for (const [claim, since] of this.#owed) {
      if (performance.now() - since > claim.owedFor) this.#owed.delete(claim);
      else if (this.#channel.canSend) this.release(claim).catch(() => undefined);
      else return this.#payLater();
    }
  }

  /** A server may refuse a release for a while without ending the connection (MISCONF, NOREPLICAS, BUSY). */
  #payLater(): void {
    this.#payment ??= setTimeout(() => {
      this.#payment = undefined;
      this.#payOwed();
    }, RELEASE_AGAIN_MS).unref();
  }

  #reportRefusal({ message }: Error): void {
    this.fleet.warnOnce(
      `${this.name} refuses to release locks, which end with their ttl meanwhile: ${message}`,
    );
  }

  #owe(claim: Lease): void {
    if (!this.#owed.has(claim)) this.#owed.set(claim, performance.now());
    for (const [oldest, since] of this.#owed) {
      if (this.#owed.size <= MOST_OWED_RELEASES && performance.now() - since <= oldest.owedFor) break;
      this.#owed.delete(oldest);
    }
  }
}

/** What the script ACQUIRE answers for a claim; numbers may come as strings from a client of the user's (`stringNumbers`). */
type AcquireResult = number | string | readonly (number | string)[];

function isTooLate(result: AcquireResult): boolean {
  return Array.isArray(result) && Number(result[0]) === TOO_LATE;
}

/** @throws Error when it is no number: a grant without a counter is worth nothing */
function checkedCounter(counter: unknown): number {
  if (Number.isSafeInteger(Number(counter))) return Number(counter);
  throw new Error(`answered ${String(counter)} in place of a fencing counter`);
}

/** What ACQUIRE is told of one that waits. */
function placeOf({ waited, next }: QueuePosition, place: WaiterId): string {
  return `${waited.toFixed(3)} ${next?.toFixed(3) ?? '-'} ${placeName(place)}`;
}

/** Milliseconds that a fencing counter is kept after its last grant or extension: longer for longer locks. */
function counterLife(ttl: number): number {
  return Math.max(COUNTER_LIFE_MS, 2 * ttl);
}
