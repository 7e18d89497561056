import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import type { Store } from '../../lib/core/ports.js';
import { inspectionContract } from './inspection-contract.js';
import { type Backend, lockContract } from './lock-contract.js';

function memoryBackend(): Promise<Backend> {
  const node = new MemoryStore();
  // The simulated processes of the contract share one node. Each of them calls `close` at its end. That call must do
  // nothing, because the other processes still use the node.
  const shared: Store = {
    name: node.name,
    connect: () => node.connect(),
    time: () => node.time(),
    acquire: (requests, ordered, tell) => node.acquire(requests, ordered, tell),
    raise: (lease, token) => node.raise(lease, token),
    extend: (leases, ttl, tell) => node.extend(leases, ttl, tell),
    release: (requests, tell) => node.release(requests, tell),
    read: (keys) => node.read(keys),
    waiting: (keys) => node.waiting(keys),
    check: () => node.check(),
    scan: (prefix) => node.scan(prefix),
    forceRelease: (key, ids) => node.forceRelease(key, ids),
    modes: node.modes,
    available: node.available,
    subscribed: node.subscribed,
    contended: () => node.contended(),
    listen: (waiter, onMessage) => node.listen(waiter, onMessage),
    leave: (waiter) => node.leave(waiter),
    holdBack: (waiter, waited) => node.holdBack(waiter, waited),
    letPass: (waiter) => node.letPass(waiter),
    close: () => Promise.resolve(),
  };
  return Promise.resolve({
    nodes: () => Promise.resolve([shared]),
    countKeys: () => Promise.resolve(node.size),
    stop: () => node.close(),
  });
}

lockContract('memory', memoryBackend);
inspectionContract('memory', memoryBackend, { allModes: true });
