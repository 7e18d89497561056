import { parentPort, workerData } from 'node:worker_threads';
import type { Store } from '../../core/ports.js';
import type { MadeStore, StoreFactory } from '../../core/store-factory.js';
import { quorumOf } from '../../redlock/quorum.js';
import { RestartGuard } from '../../redlock/restart-guard.js';
import { Beats } from '../../redlock/thread/liveness.js';
import type { FromThread, ToThread } from '../../redlock/thread/messages.js';
import { Renewals } from '../../redlock/thread/renewals.js';
import { openClient } from '../../stores/redis/connection/connection.js';
import { RedisStore } from '../../stores/redis/redis-store.js';
import type { StoreContext } from '../../stores/redis/store-context.js';
import { setNetworkDefaults } from './network-defaults.js';
import type { SendableNode } from './sendable-nodes.js';
import type { ThreadData } from './thread-terms.js';

// The program of the worker thread that renews locks. It opens stores of its own, and renews what it gets by messages.

/** Milliseconds between two looks whether a quorum of stores is connected. */
const LOOK_MS = 20;

const port = parentPort!;
const { nodes, terms, beats, network } = workerData as ThreadData;
const post = (message: FromThread): void => port.postMessage(message);
const told = new Set<string>();
const context: StoreContext = {
  ...terms,
  names: new Set(),
  runIds: new Map(),
  warnOnce: (text) => {
    if (told.has(text)) return;
    told.add(text);
    post({ kind: 'warning', text });
  },
};

/** Makes the factories of stores. Each is loaded only when it is needed: it loads the driver of its database. */
const FACTORIES: { readonly [Name in MadeStore['by']]: (options: object) => Promise<StoreFactory> } = {
  postgres: async (options) => (await import('../../postgres/index.js')).postgres(options),
  mysql: async (options) => (await import('../../mysql/index.js')).mysql(options),
};

async function open(node: SendableNode): Promise<Store> {
  if ('redis' in node) return new RedisStore(openClient(node.redis), true, context);
  const factory = await FACTORIES[node.by](node.options);
  const { keyPrefix, warnOnce } = context;
  const nobody = (): void => undefined;
  // The thread has no waiters, and the store of the other thread has prepared the server.
  return factory.openStore({ keyPrefix, warnOnce, lost: nobody, ready: nobody, looksOnly: true });
}

async function run(): Promise<void> {
  setNetworkDefaults(network);
  const stores = await Promise.all(nodes.map(open));
  const { driftFactor, nodeTimeout, keyPrefix, guard } = terms;
  const settings = { owner: '', driftFactor, nodeTimeout, keyPrefix, guard: new RestartGuard(guard) };
  const renewals = new Renewals(stores, settings, new Beats(beats), post);
  let looking: NodeJS.Timeout | undefined;

  const connect = (): void => {
    // A store that cannot be reached keeps trying, and the main thread reports it.
    for (const store of stores) store.connect().catch(() => undefined);
    looking = setInterval(() => {
      if (stores.filter(({ available }) => available).length < quorumOf(stores.length)) return;
      clearInterval(looking);
      post({ kind: 'ready' });
    }, LOOK_MS);
  };

  const close = async (): Promise<void> => {
    clearInterval(looking);
    renewals.close();
    await Promise.allSettled(stores.map((store) => store.close()));
    post({ kind: 'closed' });
    port.close();
  };

  port.on('message', (message: ToThread) => {
    if (message.kind === 'connect') connect();
    else if (message.kind === 'close') void close();
    else renewals.receive(message);
  });
}

void run();
