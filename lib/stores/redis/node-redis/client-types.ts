import type { EventEmitter } from 'node:events';

// The used parts of node-redis 5 and 6, as structural types: the package belongs to the application, and is no peer
// dependency.

export type Listener = (message: string, channel: string) => void;

/** The options of one command; `undefined` overrides an option of the client. */
export interface CommandOptions {
  readonly timeout: undefined;
  readonly abortSignal: undefined;
  readonly typeMapping: undefined;
}

export interface SocketOptions {
  readonly host?: string;
  readonly port?: number;
  readonly path?: string;
}

export interface ClientOptions {
  readonly socket?: SocketOptions;
  readonly database?: number;
  readonly keyPrefix?: string;
}

interface Shared extends EventEmitter {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  /** The prefix that the client's own methods add to keys, and `sendCommand` does not; from 6.3 on. */
  readonly _keyPrefix?: string | undefined;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: Listener): Promise<void>;
  unsubscribe(channel: string, listener: Listener): Promise<void>;
}

/** The result of `createClient`. */
export interface SingleClient extends Shared {
  readonly options: ClientOptions;
  /** Counts its connections, one after the other. */
  readonly socketEpoch: number;
  sendCommand(args: readonly string[], options: CommandOptions): Promise<unknown>;
  sSubscribe(channel: string, listener: Listener): Promise<void>;
  sUnsubscribe(channel: string): Promise<void>;
  duplicate(options: object): SingleClient;
  destroy(): void;
}

/** A master of a client from `createCluster`. */
export interface ClusterMaster {
  readonly host: string;
  readonly port: number;
  readonly client?: SingleClient | undefined;
}

/** The result of `createCluster`. */
export interface ClusterClient extends Shared {
  readonly masters: readonly ClusterMaster[];
  readonly _options: {
    readonly rootNodes: readonly ({ readonly url?: string } & ClientOptions)[];
    readonly nodeAddressMap?:
      Record<string, SocketOptions> | ((address: string) => SocketOptions | undefined);
  };
  sendCommand(
    key: string | undefined,
    isReadOnly: boolean,
    args: readonly string[],
    options: CommandOptions,
  ): Promise<unknown>;
  nodeClient(master: ClusterMaster): Promise<SingleClient>;
}

/** The result of `createSentinel`. */
export interface SentinelClient extends Shared {
  sendCommand(isReadOnly: boolean, args: readonly string[], options: CommandOptions): Promise<unknown>;
  getSentinelNode(): ServerNode | undefined;
  getMasterNode(): ServerNode | undefined;
  duplicate(options: object): SentinelClient;
  destroy(): Promise<void>;
}

interface ServerNode {
  readonly host: string;
  readonly port: number;
}

/** A command has no time limit in the client (S16), and its reply has the same form as from ioredis. */
export const PLAINLY: CommandOptions = {
  timeout: undefined,
  abortSignal: undefined,
  typeMapping: undefined,
};
