// Clients as an application makes them: the application connects them, passes them in as `nodes` and closes them.

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** The addresses that a client needs to reach one node. */
export type Target =
  | { readonly kind: 'server'; readonly url: string }
  /** Some servers of a Redis Cluster. */
  | { readonly kind: 'cluster'; readonly servers: readonly Address[] }
  /** The Sentinels that know the master by this name. */
  | { readonly kind: 'sentinel'; readonly name: string; readonly sentinels: readonly Address[] };

export type Library = 'ioredis' | 'node-redis' | 'Valkey GLIDE';

export interface PassedIn {
  readonly client: object;
  close(): unknown;
}

type Maker<Kind extends Target['kind']> = (target: Extract<Target, { kind: Kind }>) => Promise<PassedIn>;

const MAKERS: Readonly<Record<Library, { readonly [Kind in Target['kind']]: Maker<Kind> }>> = {
  'Valkey GLIDE': {
    server: async ({ url }) => {
      const { hostname, port } = new URL(url);
      const { GlideClient } = await glide();
      return closable(
        await GlideClient.createClient({ addresses: [{ host: hostname, port: Number(port) }] }),
      );
    },
    cluster: async ({ servers }) => {
      const { GlideClusterClient } = await glide();
      return closable(await GlideClusterClient.createClient({ addresses: [...servers] }));
    },
    sentinel: () => Promise.reject(new Error('GLIDE knows no Sentinels')),
  },
  ioredis: {
    server: async ({ url }) => {
      const { Redis } = await import('ioredis');
      return ioredis(new Redis(url));
    },
    cluster: async ({ servers }) => {
      const { Cluster } = await import('ioredis');
      return ioredis(new Cluster([...servers]));
    },
    sentinel: async ({ name, sentinels }) => {
      const { Redis } = await import('ioredis');
      return ioredis(new Redis({ name, sentinels: [...sentinels] }));
    },
  },
  'node-redis': {
    server: async ({ url }) => {
      const { createClient } = await import('redis');
      return nodeRedis(createClient({ url }));
    },
    cluster: async ({ servers }) => {
      const { createCluster } = await import('redis');
      return nodeRedis(createCluster({ rootNodes: servers.map((socket) => ({ socket })) }));
    },
    sentinel: async ({ name, sentinels }) => {
      const { createSentinel } = await import('redis');
      return nodeRedis(createSentinel({ name, sentinelRootNodes: [...sentinels] }));
    },
  },
};

/** Opens a client of the library; resolves when the client is connected. */
export function openPassedIn(library: Library, target: Target): Promise<PassedIn> {
  return (MAKERS[library][target.kind] as Maker<Target['kind']>)(target);
}

/** Loads GLIDE, which writes each error of a server to the console. */
async function glide(): Promise<typeof import('@valkey/valkey-glide')> {
  const loaded = await import('@valkey/valkey-glide');
  loaded.Logger.setLoggerConfig('off');
  return loaded;
}

function closable(client: { close(): void }): PassedIn {
  return { client, close: () => client.close() };
}

async function ioredis(client: NodeJS.EventEmitter & { disconnect(): void }): Promise<PassedIn> {
  client.on('error', () => undefined);
  await new Promise((resolve) => client.once('ready', resolve));
  return { client, close: () => client.disconnect() };
}

async function nodeRedis(
  client: NodeJS.EventEmitter & { connect(): Promise<unknown>; destroy(): unknown },
): Promise<PassedIn> {
  client.on('error', () => undefined);
  await client.connect();
  return { client, close: () => client.destroy() };
}
