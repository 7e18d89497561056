import { IoredisNode } from './ioredis/ioredis-node.js';
import { type Client, openClient } from './ioredis/connection.js';
import { MemoryNode } from './memory/memory-node.js';
import type { RedlockModuleOptions, RedlockNodeOption } from './redlock.options.js';
import type { Fleet } from './ioredis/fleet.js';
import type { LockNode } from './redlock/lock-node.js';

/** How many nodes the options of a module name. */
export function countNodes({ nodes }: RedlockModuleOptions): number {
  return isList(nodes) ? nodes.length : 1;
}

/** The nodes that the checked options of a module name. */
export function nodesOf({ nodes }: RedlockModuleOptions, fleet: Fleet): readonly LockNode[] {
  const all = isList(nodes) ? nodes : [nodes];
  return all.map((node) => {
    if (node === 'memory') {
      fleet.warnOnce(
        "nodes: 'memory' locks inside this process only. Give Redis nodes when several processes run.",
      );
      return new MemoryNode();
    }
    return isClient(node)
      ? new IoredisNode(node, false, fleet)
      : new IoredisNode(openClient(node), true, fleet);
  });
}

function isList(nodes: RedlockModuleOptions['nodes']): nodes is readonly RedlockNodeOption[] {
  return Array.isArray(nodes);
}

/** By what it can do, not by its class: the application may have another copy of ioredis than this package. */
function isClient(node: RedlockNodeOption): node is Client {
  return typeof node === 'object' && 'evalsha' in node && 'status' in node;
}
