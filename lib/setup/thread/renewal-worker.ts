import { subscribe } from 'node:diagnostics_channel';
import { parentPort, workerData } from 'node:worker_threads';
import { UnfitStoreError } from '../../core/errors.js';
import { NODE_ERROR_CHANNEL, type NodeErrorEvent } from '../../core/lock-events.js';
import type { Store } from '../../core/ports.js';
import type { MadeStore, StoreFactory } from '../../core/store-factory.js';
import type { EtcdOptions } from '../../etcd/index.js';
import { quorumOf } from '../../redlock/quorum.js';
import { RestartGuard } from '../../redlock/restart-guard.js';
import { Beats } from '../../redlock/thread/liveness.js';
import type { FromThread, ToThread } from '../../redlock/thread/messages.js';
import { Renewals } from '../../redlock/thread/renewals.js';
import type { StoreContext } from '../../stores/redis/store-context.js';
import { setNetworkDefaults } from './network-defaults.js';
import type { ZooKeeperOptions } from '../../zookeeper/index.js';
import { openNode } from '../open-stores.js';
import { LOOKS_ONLY } from './looks-only.js';
import { openOwnNodes } from './own-nodes.js';
import type { SendableNode } from './sendable-nodes.js';
import type { ThreadData } from './thread-terms.js';

// The program of the worker thread that renews locks. It opens stores of its own, and renews what it gets by messages.

/** Milliseconds until the thread looks whether a quorum of stores is connected, and the longest pause between looks. */
const FIRST_LOOK_MS = 20;
const LONGEST_LOOK_MS = 500;

const port = parentPort!;
const { nodes, terms, beats, network } = workerData as ThreadData;
const post = (message: FromThread): void => port.postMessage(message);
subscribe(NODE_ERROR_CHANNEL, (event) => {
  const { node, error } = event as NodeErrorEvent;
  post({ kind: 'node-error', node, message: error.message });
});
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
  etcd: async (options) => (await import('../../etcd/index.js')).etcd(options as EtcdOptions),
  zookeeper: async (options) =>
    (await import('../../zookeeper/index.js')).zookeeper(options as ZooKeeperOptions),
};

async function open(node: SendableNode): Promise<Store> {
  const made = 'redis' in node ? node.redis : await FACTORIES[node.by](node.options);
  return openNode(made, context, LOOKS_ONLY);
}

/**
 * Ends the thread if the application's own file makes nodes that are unfit, such as one server twice: the main thread has
 * others, and a quorum of these would not be one of those.
 */
function endIfUnfit(error: unknown): void {
  if ('file' in nodes && error instanceof UnfitStoreError)
    setImmediate(() => {
      throw error;
    });
}

async function run(): Promise<void> {
  setNetworkDefaults(network);
  const stores = 'file' in nodes ? await openOwnNodes(nodes, context) : await Promise.all(nodes.map(open));
  const { driftFactor, nodeTimeout, keyPrefix, guard } = terms;
  const settings = { owner: '', driftFactor, nodeTimeout, keyPrefix, guard: new RestartGuard(guard) };
  const renewals = new Renewals(stores, settings, new Beats(beats), post);
  let looking: NodeJS.Timeout | undefined;
  /** The stores whose servers are still being checked. They may not renew before it is known that they are fit. */
  const checking = new Set<Store>();

  const connect = (): void => {
    for (const store of stores) {
      checking.add(store);
      // A store that cannot be reached keeps trying, and the main thread reports it.
      const connected = store.connect().catch(endIfUnfit);
      void connected.finally(() => checking.delete(store));
    }
    lookIn(FIRST_LOOK_MS);
  };

  const canRenew = (store: Store): boolean => store.available && !checking.has(store);

  const lookIn = (pause: number): void => {
    looking = setTimeout(() => {
      if (stores.filter(canRenew).length >= quorumOf(stores.length)) post({ kind: 'ready' });
      else lookIn(Math.min(2 * pause, LONGEST_LOOK_MS));
    }, pause);
  };

  const close = async (): Promise<void> => {
    clearTimeout(looking);
    renewals.close();
    await Promise.allSettled(stores.map((store) => store.close()));
    post({ kind: 'closed' });
  };

  port.on('message', (message: ToThread) => {
    if (message.kind === 'connect') connect();
    else if (message.kind === 'close') void close();
    else renewals.receive(message);
  });
}

void run();
