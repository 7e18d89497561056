import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import type { LockStore } from '../../lib/core/ports.js';
import { inspectionContract } from './inspection-contract.js';
import { type Backend, lockContract } from './lock-contract.js';

function memoryBackend(): Promise<Backend> {
  const node = new MemoryStore();
  // The contract's processes share the node, and each of them closes what it was given.
  const shared: LockStore = {
    name: node.name,
    connect: () => node.connect(),
    time: () => node.time(),
    acquire: (claim, terms) => node.acquire(claim, terms),
    raise: (claim, token) => node.raise(claim, token),
    extend: (claims, ttl) => node.extend(claims, ttl),
    read: (keys) => node.read(keys),
    check: () => node.check(),
    scan: (prefix) => node.scan(prefix),
    forceRelease: (key, ids) => node.forceRelease(key, ids),
    release: (claim, after) => node.release(claim, after),
    available: node.available,
    subscribed: node.subscribed,
    contended: () => node.contended(),
    listen: (place, heard) => node.listen(place, heard),
    leave: (place) => node.leave(place),
    close: () => Promise.resolve(),
  };
  return Promise.resolve({
    nodes: () => Promise.resolve([shared]),
    countKeys: () => Promise.resolve(node.size),
    stop: () => node.close(),
  });
}

lockContract('memory', memoryBackend);
inspectionContract('memory', memoryBackend);
