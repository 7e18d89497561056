import { errorMonitor } from 'node:events';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { DriverOptions, Server } from '../connection/driver.js';
import { PLAINLY, type SingleClient } from './client-types.js';
import { likeIoredis, NodeRedisDriver } from './node-redis-driver.js';
import { NodeRedisMessages } from './node-redis-messages.js';

/** The driver for a client from `createClient` of node-redis. */
export class SingleDriver extends NodeRedisDriver {
  readonly isCluster = false;
  readonly options: DriverOptions;
  readonly address: string;
  readonly #servers: readonly Server[];

  constructor(private readonly client: SingleClient) {
    super();
    this.options = optionsOf(client);
    const { path, host, port, db } = this.options;
    this.address = path ?? `${host}:${port}${db ? `/${db}` : ''}`;
    this.#servers = [
      new AdaptedServer(
        (args) => likeIoredis(client.sendCommand(args, PLAINLY)),
        this.options,
        (at) => new NodeRedisMessages(() => Promise.resolve(client), at),
      ),
    ];
  }

  get status(): string {
    if (this.client.isReady) return 'ready';
    return this.client.isOpen ? 'reconnecting' : 'end';
  }

  connect(): Promise<unknown> {
    return this.client.connect();
  }

  nodes(): readonly Server[] {
    return this.#servers;
  }

  attach(): void {
    this.client.on('ready', this.#onReady);
    this.client.on('end', this.#onEnd);
    // Use `errorMonitor`: a listener for `error` would hide the client's errors from the application.
    this.client.on(errorMonitor, this.#onError);
  }

  detach(): void {
    this.client.off('ready', this.#onReady);
    this.client.off('end', this.#onEnd);
    this.client.off(errorMonitor, this.#onError);
  }

  protected send(args: readonly string[]): Promise<unknown> {
    return this.client.sendCommand(args, PLAINLY);
  }

  readonly #onReady = (): void => {
    this.lastError = undefined;
    this.emit('ready');
  };

  readonly #onEnd = (): void => {
    this.emit('close');
  };

  /** Records an error that has ended the connection. Other errors are ignored. */
  readonly #onError = (error: Error): void => {
    if (this.client.isReady) return;
    this.lastError = error;
    this.emit('close');
  };
}

/** The address and the prefix of a client. */
export function optionsOf({ options, _keyPrefix }: SingleClient): DriverOptions {
  const { socket, database } = options;
  return {
    host: socket?.host ?? 'localhost',
    port: socket?.port ?? 6379,
    path: socket?.path,
    db: database,
    keyPrefix: _keyPrefix,
  };
}
