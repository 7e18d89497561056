import { setTimeout as sleep } from 'node:timers/promises';
import type { Lease } from '../core/lease.js';
import type { Nodes } from './nodes.js';
import { release } from './release.js';
import { nodeTimeLimit } from './validity.js';

/** Milliseconds between two attempts. */
const AGAIN_MS = 200;

/**
 * Released locks that no quorum has confirmed, although their release leaves data on the nodes: the record of a tick, or
 * the keys for the rest of `minHold`. Without the record another process runs the tick again. While the process runs,
 * the stores repeat such releases. The shutdown waits for them here, because it ends the repetitions.
 */
export class UnstoredReleases {
  /** The last release for each schedule and each set of keys: it replaces the data of earlier releases. */
  readonly #leases = new Map<string, Lease>();

  constructor(
    private readonly nodes: Nodes,
    private readonly nodeTimeout: number | undefined,
  ) {}

  /** Records a release that no quorum has confirmed. */
  note(lease: Lease): void {
    if (leavesData(lease)) this.#leases.set(JSON.stringify([lease.tick?.schedule, lease.keys]), lease);
  }

  /** Repeats the releases until a quorum has confirmed each, or `total` milliseconds have passed. Never rejects. */
  async store(total: number): Promise<void> {
    const end = performance.now() + total;
    for (;;) {
      const left = end - performance.now();
      for (const [name, lease] of this.#leases) if (!leavesData(lease)) this.#leases.delete(name);
      if (this.#leases.size === 0 || left <= 0) return;
      const { nodes, nodeTimeout } = this;
      const again = [...this.#leases].map(async ([name, lease]) => {
        const limit = Math.max(1, Math.min(nodeTimeLimit(lease.ttl, nodeTimeout), left));
        let isStored = true;
        await release(nodes, lease, limit, () => (isStored = false));
        if (isStored) this.#leases.delete(name);
      });
      nodes.flush();
      await Promise.all(again);
      if (this.#leases.size > 0) await sleep(Math.min(AGAIN_MS, Math.max(0, end - performance.now())));
    }
  }
}

/** `true` if the release still has something to store. */
function leavesData({ keepFor, mark }: Lease): boolean {
  return keepFor > 0 || mark !== undefined;
}
