import type { Cluster, Redis } from 'ioredis';
import { neutral } from '../../core/neutral.js';
import {
  asError,
  ClosedStoreError,
  GuardedNodeError,
  UnfitStoreError,
  type YoungBecause,
} from '../../core/errors.js';
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
  QuorumStore,
  ReleaseRequest,
  StarvationGuard,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../../core/ports.js';
import { RecentKeys } from '../../core/recent-keys.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { Acquisitions } from './acquisitions.js';
import { ClusterConnecting } from './connection/cluster-connecting.js';
import { CLOSED, CommandChannel, isRefusal } from './connection/command-channel.js';
import { withAdvice } from './connection/connection-advice.js';
import { keyPrefixOf, nameOf } from './connection/connection.js';
import { type Driver, mastersOf, type Server } from './connection/driver.js';
import { IdlePing } from './connection/idle-ping.js';
import { MasterWatch } from './connection/master-watch.js';
import { Extensions } from './extensions.js';
import { ServerProbe } from './health/server-probe.js';
import { channelBase, markerKey, probeKey, wakeChannel, whyNotInCluster } from './lock-key.js';
import { LockReader } from './lock-reader.js';
import { OneAfterAnother } from './one-after-another.js';
import { ClusterSubscriber } from './pubsub/cluster-subscriber.js';
import { type Messages, NO_MESSAGES } from './pubsub/messages.js';
import { copyForMessages, Subscriber } from './pubsub/subscriber.js';
import { waiterName } from './record.js';
import type { RedisNode } from './redis-node.js';
import { Releases } from './releases.js';
import { nodeScripts } from './scripts/node-scripts.js';
import type { Packed, Script } from './scripts/script.js';
import type { StoreContext } from './store-context.js';

/**
 * Longest delay in milliseconds before a waiter asks again after its messages have stopped. Each waiter takes a random
 * delay up to this limit, so that the waiters do not all ask at once.
 */
const UNSUBSCRIBED_JITTER_MS = 100;

/**
 * A store in one Redis, through a client of ioredis, iovalkey, node-redis or Valkey GLIDE.
 *
 * Each request takes one command and one round trip. If the server does not know the script, for example after a
 * `SCRIPT FLUSH`, a second command sends the text of the script.
 */
export class RedisStore
  implements
    LockStore,
    WaitQueue,
    StarvationGuard,
    LockDirectory,
    QueueDirectory,
    QuorumStore,
    LeaseExchange,
    StoreHealth
{
  readonly name: string;
  readonly modes: readonly LockMode[] = nodeScripts.modes;
  /** Only a Cluster refuses keys. */
  readonly refuses?: (keys: readonly string[]) => string | undefined;
  readonly #channel: CommandChannel;
  readonly #probe: ServerProbe;
  readonly #reader: LockReader;
  readonly #masterWatch: MasterWatch | undefined;
  /** Only for a connection of our own: the connection of a passed-in client is the application's. */
  readonly #ping: IdlePing | undefined;
  #connecting: ClusterConnecting | undefined;
  #isListening = false;

  #whenReady: (() => void) | undefined;
  #whenClosed: ((error: Error) => void) | undefined;
  #isClosed = false;
  #subscriber: Messages | undefined;
  readonly #waiters = new RecentKeys();
  readonly #moving = new RecentKeys();
  readonly #aboutWaiters = new OneAfterAnother();
  readonly #acquisitions: Acquisitions;
  readonly #extensions: Extensions;
  readonly #releases: Releases;
  readonly #channelBase: string;
  readonly #marker: string | undefined;

  // The application may have connected its client in a request, and the events of the client keep that context (S30).
  readonly #onClose = neutral((): void => {
    this.#channel.disconnected();
    this.#probe.lost();
    this.context.nodeLost?.(this.name);
  });

  /** A Cluster of ioredis has lost a connection, and resends its commands on another one. */
  readonly #onNodeGone = neutral((): void => void this.#channel.losses++);

  readonly #onRefresh = neutral((): void => this.#probe.refreshed());

  readonly #onReady = neutral((): void => {
    this.context.nodeReady?.(this.name);
    this.#channel.connected();
    this.#probe.begin();
    this.#ping?.begin();
    this.#masterWatch?.begin();
    this.#releases.sendPending();
  });

  /** @param opened - `true` if the library made the client, and so closes it */
  constructor(
    private readonly client: Driver,
    private readonly opened: boolean,
    private readonly context: StoreContext,
  ) {
    this.name = nameOf(client, context.names);
    this.#channel = new CommandChannel(client, opened, (advice) =>
      context.warnOnce(`${this.name}: ${advice}`),
    );
    this.#probe = new ServerProbe(this.name, this.#channel, context);
    if (opened) {
      const ping = (): void => void this.#probe.ping().catch(() => undefined);
      this.#ping = new IdlePing(() => this.#channel.quietFor, ping);
    }
    this.#reader = new LockReader(this.#channel, context.keyPrefix);
    const { isCluster } = client;
    this.#channelBase = isCluster ? '' : channelBase(this.#channelPrefix);
    const before = this.#channelPrefix;
    if (isCluster) this.refuses = (keys) => whyNotInCluster(before, keys);
    const { guarded, several, keyPrefix } = context;
    this.#marker = (guarded || several) && !isCluster ? markerKey(keyPrefix) : undefined;
    const node: RedisNode = {
      name: this.name,
      context,
      isCluster,
      opened,
      channel: this.#channel,
      probe: this.#probe,
      waiters: this.#waiters,
      moving: this.#moving,
      channelBase: this.#channelBase,
      marker: this.#marker,
    };
    this.#acquisitions = new Acquisitions(node, (lease, deadline) =>
      this.#releases.mayComeLater(lease, deadline),
    );
    this.#extensions = new Extensions(node);
    this.#releases = new Releases(node, this.#acquisitions);
    if ('sentinels' in client.options && client.options.sentinels) {
      this.#masterWatch = new MasterWatch(client as Redis, (master) => {
        this.#channel.follow(master);
        if (this.#subscriber instanceof Subscriber) this.#subscriber.follow(master);
      });
    }
  }

  async connect(): Promise<void> {
    // Listeners that are added after `close` would stay on a client of the application.
    if (this.#isClosed) throw new ClosedStoreError();
    this.#listen();
    try {
      await this.#connect();
    } catch (error) {
      if (this.#isClosed) throw new ClosedStoreError();
      throw withAdvice(asError(error));
    }
  }

  /**
   * Adds the listeners to the client. Only `connect` calls this method, not the constructor: if the application failed
   * to start before `connect`, nobody would remove the listeners from the application's client.
   */
  #listen(): void {
    if (this.#isListening) return;
    this.#isListening = true;
    const { client } = this;
    client.attach?.();
    this.#channel.listen();
    if (client.isCluster && !client.attach) this.#connecting = new ClusterConnecting(client as Cluster);
    client.on('ready', this.#onReady);
    client.on('close', this.#onClose);
    client.on('-node', this.#onNodeGone);
    // The client emits `refresh` when it has read the list of the Cluster's masters.
    client.on('refresh', this.#onRefresh);
  }

  async #connect(): Promise<void> {
    const { status } = this.client;
    if (this.#channel.isClosed) {
      throw CLOSED;
    } else if (status === 'ready') {
      this.#onReady();
    } else {
      const ready = new Promise<void>((resolve, reject) => {
        this.#whenReady = resolve;
        this.#whenClosed = reject;
        this.client.once('ready', resolve);
      });
      // `connect` of a Cluster never settles if the client has to connect again, so wait for `ready`, too.
      if (status === 'wait') await Promise.race([this.#channel.open(), ready]);
      await ready;
    }
    await this.#probe.concluded();
  }

  get available(): boolean {
    return !this.#acquisitions.isUnfit && this.#channel.canSend;
  }

  get idle(): boolean {
    return this.#channel.isIdle;
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
    this.#acquisitions.acquire(requests, ordered, tell);
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    this.#extensions.extend(leases, ttl, tell);
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    this.#releases.release(requests, tell);
  }

  exchange(request: ExchangeRequest): Promise<boolean> {
    return this.#acquisitions.exchange(request);
  }

  async raise(lease: Lease, token: number): Promise<boolean> {
    const { script, pack } = nodeScripts.of(lease).raise;
    const packed = pack(lease, token, this.context.keyPrefix, this.#marker);
    return Number(await this.#channel.run(script, packed, () => !lease.ended)) === 1;
  }

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    await this.#probe.passed();
    return this.#reader.read(keys);
  }

  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    await this.#probe.passed();
    return this.#reader.waiting(keys);
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    await this.#probe.passed();
    const { connection } = this.#probe;
    for await (const page of this.#reader.scan(prefix)) {
      // The cursor of a SCAN is not valid on another server, nor on the same server after a restart.
      if (connection !== this.#probe.connection)
        throw new Error('the connection was replaced while the locks were read');
      yield page;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    await this.#probe.passed();
    const { script, pack, endedOf } = nodeScripts.forceRelease;
    const packed = pack(key, ids, this.context.keyPrefix, this.#channelBase);
    return endedOf(ids, await this.#channel.runOnce(script, packed));
  }

  async check(guard: number): Promise<NodeCheck> {
    let age: number;
    let cause: YoungBecause | undefined;
    try {
      await this.#probe.passed();
      // The first command also sets a missing marker, so that the guard's time begins to run.
      [{ age, cause }] = await Promise.all([
        this.#probe.meet(),
        this.#channel.run(nodeScripts.probe.script, [1, probeKey(this.context.keyPrefix)]),
      ]);
    } catch (error) {
      if (error instanceof UnfitStoreError) return { state: 'unfit', reason: error.message, warnings: [] };
      if (!isRefusal(error)) throw error;
      return { state: 'unfit', reason: `refuses to store locks: ${error.message}`, warnings: [] };
    }
    const warnings = this.#probe.weaknesses;
    const votesIn = Math.ceil(guard - age);
    if (votesIn <= 0) return { state: 'voting', warnings };
    return { state: 'guarded', votesIn, reason: new GuardedNodeError(votesIn, cause).message, warnings };
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
    const moving = this.#moving;
    return {
      get ready() {
        // While the slot of a key moves, waiters do not join its queue, and poll.
        return subscriptions.every(({ ready }) => ready) && !moving.any(waiter.keys);
      },
      stop: () => {
        for (const subscription of subscriptions) subscription.stop();
      },
    };
  }

  async holdBack(waiter: WaiterId, waited: number): Promise<boolean> {
    const { script, pack } = nodeScripts.holdBack;
    const stands = await this.#tell(waiter, script, pack(waiter, waited, this.context.keyPrefix));
    return Number(stands) === 1;
  }

  async letPass(waiter: WaiterId): Promise<void> {
    const { script, pack } = nodeScripts.letPass;
    await this.#tell(waiter, script, pack(waiter, this.context.keyPrefix));
  }

  async leave(waiter: WaiterId): Promise<void> {
    const { script, pack } = nodeScripts.leave;
    await this.#tell(waiter, script, pack(waiter, this.context.keyPrefix, this.#channelBase));
  }

  /**
   * Sends the commands about a waiter one after the other. Otherwise a mark could be set after its waiter has left, and
   * would then exclude other callers without need.
   */
  #tell(waiter: WaiterId, script: Script, packed: Packed): Promise<unknown> {
    return this.#aboutWaiters.send(waiterName(waiter), () => this.#channel.run(script, packed));
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#masterWatch?.end();
    this.#ping?.end();
    this.#channel.close();
    this.#subscriber?.close();
    this.#connecting?.close();
    this.client.off('ready', this.#onReady);
    this.client.off('close', this.#onClose);
    this.client.off('-node', this.#onNodeGone);
    this.client.off('refresh', this.#onRefresh);
    if (this.#whenReady) this.client.off('ready', this.#whenReady);
    this.#releases.close();
    if (this.opened) this.client.disconnect();
    else this.client.detach?.();
    this.#whenClosed?.(new ClosedStoreError());
    return Promise.resolve();
  }

  /**
   * The prefix of the channels. On a Cluster a script makes the channel's name from a key, to which the client has
   * added its `keyPrefix`. So the prefix of the channels contains this `keyPrefix`, too.
   */
  get #channelPrefix(): string {
    const { keyPrefix } = this.context;
    return this.client.isCluster ? `${keyPrefixOf(this.client)}${keyPrefix}` : keyPrefix;
  }

  #newSubscriber(): Messages {
    const { client } = this;
    if (client.hasMessages === false) return NO_MESSAGES;
    const [channels, commands] = client.isCluster
      ? [`${this.#channelPrefix}*`, '+ssubscribe +sunsubscribe +spublish']
      : [`${this.#channelBase}*`, '+subscribe +publish'];
    const denied = (): void =>
      this.context.warnOnce(
        `${this.name}: its user may not subscribe to channels, so waiters for a lock have to poll; allow the ` +
          `channels with ACL SETUSER <user> &${channels} ${commands}`,
      );
    if (client.isCluster) return new ClusterSubscriber(client, denied);
    const [server] = mastersOf(client) as [Server];
    return new Subscriber(() => copyForMessages(server), false, denied);
  }
}
