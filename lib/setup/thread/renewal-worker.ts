import { parentPort, workerData } from 'node:worker_threads';
import { quorumOf } from '../../redlock/quorum.js';
import { RestartGuard } from '../../redlock/restart-guard.js';
import { Beats } from '../../redlock/thread/liveness.js';
import type { FromThread, ToThread } from '../../redlock/thread/messages.js';
import { Renewals } from '../../redlock/thread/renewals.js';
import { openClient } from '../../stores/redis/connection/connection.js';
import { RedisStore } from '../../stores/redis/redis-store.js';
import type { StoreContext } from '../../stores/redis/store-context.js';
import type { ThreadData } from './thread-terms.js';

// The program of the worker thread that renews locks. It opens stores of its own, and renews what it gets by messages.

/** Milliseconds between two looks whether a quorum of stores is connected. */
const LOOK_MS = 20;

const port = parentPort!;
const { nodes, terms, beats } = workerData as ThreadData;
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
const stores = nodes.map((node) => new RedisStore(openClient(node), true, context));
const guard = new RestartGuard(terms.guard);
const { driftFactor, nodeTimeout, keyPrefix } = terms;
const renewals = new Renewals(
  stores,
  { owner: '', driftFactor, nodeTimeout, keyPrefix, guard },
  new Beats(beats),
  post,
);

port.on('message', (message: ToThread) => {
  if (message.kind === 'close') void close();
  else renewals.receive(message);
});

// A store that cannot be reached keeps trying, and the main thread reports it.
for (const store of stores) store.connect().catch(() => undefined);
const looking = setInterval(() => {
  if (stores.filter(({ available }) => available).length < quorumOf(stores.length)) return;
  clearInterval(looking);
  post({ kind: 'ready' });
}, LOOK_MS);

async function close(): Promise<void> {
  clearInterval(looking);
  renewals.close();
  await Promise.allSettled(stores.map((store) => store.close()));
  post({ kind: 'closed' });
  port.close();
}
