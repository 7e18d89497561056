/** The number of keys, the keys, and the arguments of a script. */
export type Packed = readonly [keys: number, ...rest: (string | number)[]];

/** Where a server is. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** What is read of the options of a client; the names are those of ioredis. */
export interface DriverOptions {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly path?: string | undefined;
  readonly db?: number | undefined;
  readonly keyPrefix?: string | undefined;
}

/** Hears what happens to a connection. */
interface Emitter {
  on(event: string, listener: (...args: any[]) => void): unknown;
  once(event: string, listener: (...args: any[]) => void): unknown;
  off(event: string, listener: (...args: any[]) => void): unknown;
}

/** One server, behind a client of its own or as one of those of a Cluster. */
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
  /** Makes a connection for messages, of this server or of another one of its Cluster. Without it there is `duplicate`. */
  messages?(at?: ServerAddress): MessageConnection;
}

/**
 * What a store needs of a client. A client of ioredis or iovalkey is a driver as it is, with nothing between that would cost
 * time; one of node-redis gets an adapter, see `driverFor`. Both tell of a connection by the events `connect`, `ready`
 * and `close`, and of the masters of a Cluster by `refresh`.
 */
export interface Driver extends Emitter {
  /** `ready` when commands are written at once; `wait` before it was told to connect; `end` when it was closed. */
  readonly status: string;
  readonly isCluster: boolean;
  readonly options: DriverOptions;
  /** The socket, where there is one and the client shows it. */
  readonly stream?: { readonly writable: boolean; destroy(): unknown } | undefined;
  evalsha(sha: string, ...packed: Packed): Promise<unknown>;
  eval(lua: string, ...packed: Packed): Promise<unknown>;
  connect(): Promise<unknown>;
  disconnect(): void;

  /** The masters, where the driver is not a server itself. */
  nodes?(role: 'master'): readonly Server[];
  /** Where it leads, for people; without it the options say so. */
  readonly address?: string;
  /** Why it is not connected, where the application's own listener does not keep that from us. */
  readonly lastError?: Error | undefined;
  /** Begins to listen to the application's client. */
  attach?(): void;
  /** Takes what was added to the application's client away, and closes what was opened beside it. */
  detach?(): void;
}

/** A connection that messages arrive on, by the events `message` and `smessage`. */
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
  /** Subscribing once more changes nothing; what comes back says that the connection works. */
  subscribe(channel: string): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  sunsubscribe(channel: string): Promise<unknown>;
}

/** The servers that have the keys: the masters of a Cluster, or the one that the client leads to. */
export function mastersOf(client: Driver): readonly Server[] {
  return client.nodes?.('master') ?? [client as Driver & Server];
}
