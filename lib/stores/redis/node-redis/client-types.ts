import type { EventEmitter } from 'node:events';

// Structural types for the members of node-redis 5 and 6 that this package uses. They replace the types of node-redis,
// which is a package of the application and no peer dependency.

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
  /** The prefix that the methods of the client add to keys, but `sendCommand` does not; since version 6.3. */
  readonly _keyPrefix?: string | undefined;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: Listener): Promise<void>;
  unsubscribe(channel: string, listener: Listener): Promise<void>;
}

/** The result of `createClient`. */
export interface SingleClient extends Shared {
  readonly options: ClientOptions;
  /** Counts the connections of the client. */
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

/** Options for every command: no time limit in the client (S16), and replies in the form of ioredis. */
export const PLAINLY: CommandOptions = {
  timeout: undefined,
  abortSignal: undefined,
  typeMapping: undefined,
};
