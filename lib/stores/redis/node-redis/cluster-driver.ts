import { errorMonitor } from 'node:events';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { DriverOptions, Server, ServerAddress } from '../connection/driver.js';
import {
  type ClusterClient,
  type ClusterMaster,
  PLAINLY,
  type SingleClient,
  type SocketOptions,
} from './client-types.js';
import { likeIoredis, NodeRedisDriver } from './node-redis-driver.js';
import { NodeRedisMessages } from './node-redis-messages.js';

/** The driver for a client from `createCluster` of node-redis. */
export class ClusterDriver extends NodeRedisDriver {
  readonly isCluster = true;
  readonly options: DriverOptions & { readonly natMap: (address: string) => ServerAddress | undefined };
  readonly address: string;
  /**
   * The server object of each master, with the number of the connection for which it was made. A new connection gets a
   * new object, because it can lead to another server.
   */
  readonly #servers = new WeakMap<ClusterMaster, { readonly epoch: number; readonly server: Server }>();
  #wasReady = false;

  constructor(private readonly client: ClusterClient) {
    super();
    const { _keyPrefix: keyPrefix, _options: clusterOptions } = client;
    const { rootNodes, nodeAddressMap } = clusterOptions;
    this.options = {
      keyPrefix,
      natMap: (address) => {
        const mapped =
          typeof nodeAddressMap === 'function' ? nodeAddressMap(address) : nodeAddressMap?.[address];
        return mapped && addressOf(mapped);
      },
    };
    const [first = {}] = rootNodes;
    const { host, port } = first.url ? addressInUrl(first.url) : addressOf(first.socket ?? {});
    this.address = `cluster ${host}:${port}`;
  }

  get status(): string {
    if (this.#isReady) return 'ready';
    return this.client.isOpen ? 'reconnecting' : 'end';
  }

  connect(): Promise<unknown> {
    return this.client.connect();
  }

  nodes(): readonly Server[] {
    return this.client.masters.map((master) => this.#serverOf(master));
  }

  attach(): void {
    this.#wasReady = this.#isReady;
    for (const event of EVENTS) this.client.on(event, this.#look);
    this.client.on('node-ready', this.#onNodeReady);
    this.client.on('node-error', this.#onError);
    // Use `errorMonitor`: a listener for `error` would hide the client's errors from the application.
    this.client.on(errorMonitor, this.#onError);
  }

  detach(): void {
    for (const event of EVENTS) this.client.off(event, this.#look);
    this.client.off('node-ready', this.#onNodeReady);
    this.client.off('node-error', this.#onError);
    this.client.off(errorMonitor, this.#onError);
  }

  protected send(args: readonly string[], key: string | undefined): Promise<unknown> {
    return this.client.sendCommand(key, false, args, PLAINLY);
  }

  /**
   * `true` if the client can send commands. With `minimizeConnections` a master has no client until its first command.
   */
  get #isReady(): boolean {
    return this.client.isReady && this.client.masters.some(({ client }) => client?.isReady ?? true);
  }

  readonly #look = (): void => {
    const isReady = this.#isReady;
    if (isReady === this.#wasReady) return;
    this.#wasReady = isReady;
    this.emit(isReady ? 'ready' : 'close');
  };

  readonly #onNodeReady = (): void => {
    this.#look();
    // There is a new master, or a master has a new connection.
    this.emit('refresh');
  };

  readonly #onError = (error: Error): void => {
    this.lastError = error;
    this.#look();
  };

  /**
   * Returns the client of a master. Rejects for a former master: node-redis would create a client for it that
   * reconnects for ever and that nobody closes.
   */
  async #clientOf(master: ClusterMaster): Promise<SingleClient> {
    if (!this.client.masters.includes(master)) throw new Error('is no master of the Cluster any more');
    return this.client.nodeClient(master);
  }

  #serverOf(master: ClusterMaster): Server {
    const epoch = master.client?.socketEpoch ?? 0;
    const known = this.#servers.get(master);
    if (known?.epoch === epoch) return known.server;
    const { host, port } = master;
    const clientOf = () => this.#clientOf(master);
    const server = new AdaptedServer(
      (args) => likeIoredis(clientOf().then((client) => client.sendCommand(args, PLAINLY))),
      { host, port, keyPrefix: this.options.keyPrefix },
      (at) => new NodeRedisMessages(clientOf, at),
    );
    this.#servers.set(master, { epoch, server });
    return server;
  }
}

const EVENTS = ['connect', 'disconnect', 'node-disconnect', 'node-reconnecting'] as const;

function addressOf({ host = 'localhost', port = 6379 }: SocketOptions): ServerAddress {
  return { host, port };
}

function addressInUrl(url: string): ServerAddress {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: port === '' ? 6379 : Number(port) };
}
