// Structural types for the members of Valkey GLIDE 2 that this package uses. They replace the types of GLIDE, which is a
// package of the application and no peer dependency.

/** The route of a command to one server of a Cluster. */
export type Route =
  | { readonly type: 'primarySlotKey'; readonly key: string }
  | { readonly type: 'routeByAddress'; readonly host: string; readonly port: number }
  | 'randomNode';

/** The parts of a `Batch` that `exec` reads. */
export interface Batch {
  readonly commands: readonly {
    readonly requestType: number;
    readonly argsArray: { readonly args: readonly Uint8Array[] };
  }[];
  readonly isAtomic: boolean;
  readonly setCommandsIndexes: readonly number[];
}

export interface BatchOptions {
  readonly timeout: number;
  readonly decoder: number;
  readonly route?: Route;
}

/** The options of `createClient`. */
export interface GlideOptions {
  readonly addresses: readonly { readonly host: string; readonly port?: number }[];
  readonly databaseId?: number;
}

export interface GlideMessage {
  readonly channel: string | Uint8Array;
  readonly message: string | Uint8Array;
}

interface GlideConstructor {
  createClient(options: object): Promise<GlideClient>;
}

/** A `GlideClient` or a `GlideClusterClient`. */
export interface GlideClient {
  readonly isClosed: boolean;
  readonly config: GlideOptions;
  readonly constructor: GlideConstructor & Function;
  exec(batch: Batch, raiseOnError: boolean, options: BatchOptions): Promise<readonly unknown[] | null>;
  subscribe(channels: readonly string[], timeout: number): Promise<unknown>;
  close(): void;
}
