import type { Packed } from '../scripts/script.js';

/** The address of a server. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** The client options that the library reads, under their ioredis names. */
export interface DriverOptions {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly path?: string | undefined;
  readonly db?: number | undefined;
  readonly keyPrefix?: string | undefined;
}

/** Emits the events of a connection. */
interface Emitter {
  on(event: string, listener: (...args: any[]) => void): unknown;
  once(event: string, listener: (...args: any[]) => void): unknown;
  off(event: string, listener: (...args: any[]) => void): unknown;
}

/** One server: the server of a client, or one server of a Cluster. */
export interface Server {
  readonly options: DriverOptions;
  info(): Promise<string>;
  config(get: 'GET', name: string): Promise<unknown>;
  scan(
    cursor: string,
    match: 'MATCH',
    pattern: string,
    count: 'COUNT',
    size: number,
  ): Promise<[cursor: string, keys: string[]]>;
  exists(key: string): Promise<number>;
  /**
   * Makes a connection for pub/sub messages, to this server or to another server of its Cluster. Without this method
   * the store uses `duplicate`.
   */
  messages?(at?: ServerAddress): MessageConnection;
}

/**
 * The methods of a client that a store needs. A client of ioredis or iovalkey already has these methods, so an adapter
 * would only cost time. Other clients need an adapter, see `driverFor`. Drivers emit `connect`, `ready` and
 * `close` for a connection, and `refresh` when the list of a Cluster's masters may have changed.
 */
export interface Driver extends Emitter {
  /** `ready` if commands are written immediately; `wait` before the first connect; `end` when the client is closed. */
  readonly status: string;
  readonly isCluster: boolean;
  readonly options: DriverOptions;
  /** The socket, if there is one and the client shows it. */
  readonly stream?: { readonly writable: boolean; destroy(): unknown } | undefined;
  evalsha(sha: string, ...packed: Packed): Promise<unknown>;
  eval(lua: string, ...packed: Packed): Promise<unknown>;
  connect(): Promise<unknown>;
  disconnect(): void;

  /** Lists the masters. Only a driver that is not itself a {@link Server} has this method. */
  nodes?(role: 'master'): readonly Server[];
  /** `false` if the client receives no messages, so that waiters poll. */
  readonly hasMessages?: boolean;
  /** The address in logs and errors, if it differs from the address in the options. */
  readonly address?: string;
  /** The reason why the client is not connected, if the client shows it to the library. */
  readonly lastError?: Error | undefined;
  /** Adds listeners to the application's client. */
  attach?(): void;
  /** Removes the listeners from the application's client, and closes the connections that the driver opened. */
  detach?(): void;
}

/** A connection for pub/sub messages, which emits `message` and `smessage`. */
export interface MessageConnection extends Emitter {
  readonly stream?:
    | {
        readonly remoteAddress?: string | undefined;
        readonly remotePort?: number | undefined;
        destroy(): unknown;
      }
    | undefined;
  connect(): Promise<unknown>;
  disconnect(): void;
  /** A repeated subscription changes nothing; its answer shows that the connection works. */
  subscribe(channel: string): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  sunsubscribe(channel: string): Promise<unknown>;
}

/** The servers with the keys: the masters of a Cluster, or the client's one server. */
export function mastersOf(client: Driver): readonly Server[] {
  return client.nodes?.('master') ?? [client as Driver & Server];
}
